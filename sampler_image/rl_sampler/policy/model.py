"""Where a run's model lies; one of the hub is brought into the bucket first."""

from __future__ import annotations

import logging
import threading

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.data import model_of_hub
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.model_folder import BaseLocations, ModelLocation
from rl_sampler.engine.assignment import Assignment

logger = logging.getLogger(__name__)

BEAT_SECONDS = 2.0
BEATS = 15
"""For so many beats a refusal stands; then the hub is asked again."""


class _Log:
    """Says what this pod does, a phase once."""

    def __init__(self) -> None:
        self._said = ""

    def say(self, phase: str) -> None:
        if phase != self._said:
            logger.info("%s", phase)
        self._said = phase

    def check(self) -> None:
        """The container's first process dies of SIGTERM by itself."""


def base_places(assignment: Assignment, stores: Stores) -> BaseLocations:
    """Where model and tokenizer lie in buckets.

    What the hub refuses is told by a registration that stands until it is mended, so that the
    operator can name the field: no trainer is there yet.

    Raises:
        IntegrityError, StoreUnavailableError: see ``ModelImporter``.
    """
    model = assignment.spec.model
    if not model_of_hub(model):
        own = model.tokenizer_uri
        return BaseLocations(
            model=ModelLocation.own(model.uri),
            tokenizer=None if own is None else ModelLocation.own(own),
        )
    # Their client takes a while to load, and most models are in the bucket.
    from rl_contracts.hub.model_import import ModelImporter
    from rl_contracts.hub.models import HubModels

    env, refused = assignment.env, False
    bringer = ModelImporter(
        stores=stores,
        hub=HubModels(assignment.spec.data.hub.endpoint, token_file=env.hub_token_file),
        run=assignment.run,
        holder=env.pod_uid,
        folder=assignment.weights.base.parent,
        progress=_Log(),
        wait_seconds=assignment.spec.lifecycle.pending_deadline_seconds,
    )
    while True:
        try:
            places = bringer.base(model)
        except RefusedError as error:
            logger.error("%s", error)
            refused = True
            _tell(assignment, stores, error.refusal)
            continue
        if refused:
            stores.samplers.delete(assignment.sampler)
        return places


def _tell(assignment: Assignment, stores: Stores, refusal: Refusal) -> None:
    """Be registered with a refusal for a while, as one that claims nothing."""
    pause, env = threading.Event(), assignment.env
    began = stores.mongo.now()
    for _ in range(BEATS):
        beat = Sampler(
            id=assignment.sampler,
            run=assignment.run,
            pool=env.pool,
            pod=env.pod_name,
            state=SamplerState.STARTING,
            refusals=[refusal],
            registered_at=began,
            heartbeat_at=stores.mongo.now(),
        )
        stores.samplers.put([beat])
        pause.wait(BEAT_SECONDS)
