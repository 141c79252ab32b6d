"""Registrations of samplers that ended long ago: a fleet that comes and goes leaves many."""

from __future__ import annotations

from rl_contracts.documents.run import EndedSamplers
from rl_contracts.documents.sampler import SamplerState
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.stores.connect import Stores

KEPT_SECONDS = 86_400.0
"""So long it can still be read what a sampler said last."""


def forget_ended(
    stores: Stores, *, run: str, epoch: int, kept_seconds: float = KEPT_SECONDS
) -> int:
    """Delete registrations that have been gone for so long; return how many.

    Those that died are counted in the run document first, each once whatever a crash interrupts.
    One that a claimed task still names as its owner stays.

    Raises:
        FencedOutError: a newer trainer has the run; nothing was deleted.
        LookupError: there is no such run.
    """
    before = stores.mongo.now() - kept_seconds
    ended = [
        sampler
        for sampler in stores.samplers.of_run(run)
        if sampler.state is SamplerState.GONE and sampler.heartbeat_at < before
    ]
    if not ended:
        return 0
    document = stores.runs.get(run)
    if document is None:
        raise LookupError(f"there is no run {run}")
    known = document.samplers_ended
    died = sum(not sampler.drained and sampler.heartbeat_at >= known.before for sampler in ended)
    noted = EndedSamplers(before=max(before, known.before), died=known.died + died)
    stores.runs.note_ended_samplers(run, epoch=epoch, ended=noted)
    owners = {
        task.owner
        for queue in (Queue.TRAIN, Queue.EVALUATION)
        for task in stores.tasks.find(run, queue=queue, state=TaskState.CLAIMED)
    }
    return stores.samplers.forget(
        [sampler.id for sampler in ended if sampler.id not in owners], before=before
    )
