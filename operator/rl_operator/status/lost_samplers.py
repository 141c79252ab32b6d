"""Counts the sampler pods that a run has lost, by their registrations."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.documents.run import EndedSamplers
from rl_contracts.documents.sampler import Sampler, SamplerState

NONE_FORGOTTEN = EndedSamplers()
REPLACED_SECONDS = 120.0
"""A pod of the same template that registers within this time replaces one that ended."""


def count_lost(
    samplers: Sequence[Sampler],
    *,
    suspended: Sequence[float] = (),
    forgotten: EndedSamplers = NONE_FORGOTTEN,
) -> int:
    """Sampler pods that died, or drained and were replaced by a pod of the same template.

    Pods of a pool that shrinks or rolls drain, too, but have no successor of the same template. The
    template is the pod's name up to the last dash: its ReplicaSet.

    Args:
        samplers: the registrations of a run.
        suspended: a time within each suspension, which ended all pods, also those that could not
            drain. Their successors register once the run resumes, possibly before its next attempt
            begins.
        forgotten: samplers whose registrations were deleted; they count when they died.
    """
    gone = [
        sampler
        for sampler in samplers
        if sampler.state == SamplerState.GONE and sampler.heartbeat_at >= forgotten.before
    ]
    lost = forgotten.died + sum(
        not sampler.drained and not _ended_by(suspended, sampler) for sampler in gone
    )
    successors = sorted(samplers, key=lambda sampler: sampler.registered_at)
    for ended in sorted(
        (sampler for sampler in gone if sampler.drained), key=lambda sampler: sampler.heartbeat_at
    ):
        for later in successors:
            wait = later.registered_at - ended.heartbeat_at
            stopped = any(ended.registered_at <= at <= later.registered_at for at in suspended)
            replaced = 0 <= wait <= REPLACED_SECONDS and not stopped
            if _template(later) == _template(ended) and replaced:
                successors.remove(later)
                lost += 1
                break
    return lost


def _ended_by(suspended: Sequence[float], sampler: Sampler) -> bool:
    """Whether a suspension ended a sampler before it could drain, e.g. while it started."""
    return any(
        sampler.registered_at <= at and abs(at - sampler.heartbeat_at) <= REPLACED_SECONDS
        for at in suspended
    )


def _template(sampler: Sampler) -> str:
    return sampler.pod.rpartition("-")[0]
