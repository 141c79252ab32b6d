"""Finds a run's model; a model of the hub is copied to the bucket first."""

from __future__ import annotations

import logging
import math
import threading

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.data import model_of_hub
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.model_folder import BaseLocations, ModelLocation
from rl_sampler.engine.assignment import Assignment

logger = logging.getLogger(__name__)

BEAT_SECONDS = 2.0
BEATS = 15
"""A refusal stays registered for so many beats; then the hub is asked again."""


class _Log:
    """Logs each phase of this pod once."""

    def __init__(self) -> None:
        self._last_phase = ""

    def say(self, phase: str) -> None:
        if phase != self._last_phase:
            logger.info("%s", phase)
        self._last_phase = phase

    def check(self) -> None:
        """The container's first process dies of SIGTERM by itself."""


def base_locations(assignment: Assignment, stores: Stores) -> BaseLocations:
    """Locations of model and tokenizer in buckets.

    While the hub refuses the model this pod registers with the refusal and asks again: no trainer
    runs yet, so this is how the operator learns which field is wrong.

    Raises:
        IntegrityError, StoreUnavailableError: as ``ModelImporter``.
    """
    model = assignment.spec.model
    if not model_of_hub(model):
        own = model.tokenizer_uri
        return BaseLocations(
            model=ModelLocation.own(model.uri),
            tokenizer=None if own is None else ModelLocation.own(own),
        )
    # The hub's client is slow to import, and most models are in a bucket.
    from rl_contracts.hub.model_import import ModelImporter
    from rl_contracts.hub.models import HubModels

    env, hub, refused = assignment.env, assignment.spec.data.hub, False
    bringer = ModelImporter(
        stores=stores,
        hub=HubModels(
            hub.endpoint, token_file=env.hub_token_file, trusted_by=hub.trusted_publisher
        ),
        run=assignment.run,
        holder=env.pod_uid,
        folder=assignment.weights.base.parent,
        progress=_Log(),
        wait_seconds=math.inf,  # the operator ends a start that takes too long
    )
    while True:
        try:
            places = bringer.base(model)
        except RefusedError as error:
            logger.error("%s", error)
            refused = True
            _register_refusal(assignment, stores, error.refusal)
            continue
        if refused:
            stores.samplers.delete(assignment.sampler)
        return places


def _register_refusal(assignment: Assignment, stores: Stores, refusal: Refusal) -> None:
    """Register with a refusal for a while, as a sampler that claims nothing."""
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
