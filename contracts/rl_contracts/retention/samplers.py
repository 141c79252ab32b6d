"""Deletes registrations of samplers that ended long ago; an elastic fleet leaves many."""

from __future__ import annotations

from rl_contracts.documents.run import EndedSamplers
from rl_contracts.documents.sampler import SamplerState
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.stores.connect import Stores

KEPT_SECONDS = 86_400.0
"""Registrations of ended samplers are kept this long, so that their last state can be read."""


def forget_ended(
    stores: Stores, *, run: str, epoch: int, kept_seconds: float = KEPT_SECONDS
) -> int:
    """Delete registrations of samplers that ended long ago; return their number.

    Crashed samplers are counted in the run document first, each exactly once even after a crash of
    this process. A registration that owns a claimed task stays. ``kept_seconds`` is how long a
    registration is kept.

    Raises:
        FencedOutError: a newer trainer took over the run; nothing was deleted.
        LookupError: the run does not exist.
    """
    before = stores.mongo.now() - kept_seconds
    ended = [
        sampler
        for sampler in stores.samplers.of_run(run)
        if sampler.state is SamplerState.GONE and sampler.heartbeat_at < before
    ]
    if not ended:
        return 0
    known = stores.runs.require(run).samplers_ended
    died = sum(not sampler.drained and sampler.heartbeat_at >= known.before for sampler in ended)
    noted = EndedSamplers(before=max(before, known.before), died=known.died + died)
    stores.runs.note_ended_samplers(run, epoch=epoch, ended=noted)
    idle = {sampler.id for sampler in ended} - _owners(stores, run)
    return stores.samplers.forget(sorted(idle), before=before)


def _owners(stores: Stores, run: str) -> set[str]:
    """Ids of the samplers that own a claimed task."""
    return {
        task.owner
        for queue in (Queue.TRAIN, Queue.EVALUATION)
        for task in stores.tasks.find(run, queue=queue, state=TaskState.CLAIMED)
    }
