"""The init container: stages model and newest policy on the local disk for the engine's start."""

from __future__ import annotations

import logging
import threading

from rl_contracts.errors import IntegrityError, ObjectMissingError
from rl_contracts.stores.connect import Stores
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.key import make_key
from rl_sampler.engine.turns import open_gate
from rl_sampler.policy.base import stage_base
from rl_sampler.policy.model import base_locations
from rl_sampler.policy.relay.wiring import relay_of
from rl_sampler.policy.stage import Stager
from rl_sampler.policy.verify import run_signature

logger = logging.getLogger(__name__)


def prepare(assignment: Assignment, *, stores: Stores) -> None:
    """Stage the model and the published policy, if any, and link what the engine starts from.

    Raises:
        RefusedError: the manifest's model is not usable.
        StoreUnavailableError: a store does not answer.
    """
    spec = assignment.spec
    weights = assignment.weights
    if assignment.env.engine_key_folder is not None:
        make_key(assignment.env.engine_key_folder)
    if assignment.env.turns_folder is not None:
        open_gate(assignment.env.turns_folder)
    if not weights.base.is_dir():
        weights.base.parent.mkdir(parents=True, exist_ok=True)
        stage_base(stores.objects, places=base_locations(assignment, stores), folder=weights.base)
    signature = run_signature(weights.base, spec)
    relay = relay_of(assignment, stores)
    stager = Stager(stores.objects, weights=weights, signature=signature, relay=relay)
    if not weights.current.exists():
        weights.link_current(weights.base)
    run = stores.runs.get(assignment.run)
    if run is None or run.policy is None:
        logger.info("no policy is published yet: the engine starts from the model")
        return
    try:
        staged = stager.stage(run.policy, keep=[], cancelled=threading.Event())
    except (IntegrityError, ObjectMissingError) as error:
        # The agent follows the pointer anyway; the engine must not wait for a good policy.
        logger.warning("cannot stage the published policy, starting without it: %s", error)
        if not weights.policy.exists():  # the policy of an earlier start gave way to this one
            weights.unlink_policy()
        return
    weights.link_policy(staged.folder)
    logger.info("version %d is staged for the engine", run.policy.version)
