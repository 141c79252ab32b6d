"""How many sampler pods a run has lost, by their registrations."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.documents.run import EndedSamplers
from rl_contracts.documents.sampler import Sampler, SamplerState

NONE_FORGOTTEN = EndedSamplers()
REPLACED_SECONDS = 120.0
"""A pod of the same template that registers within this time has replaced one that ended."""


def count_lost(
    samplers: Sequence[Sampler],
    *,
    suspended: Sequence[float] = (),
    forgotten: EndedSamplers = NONE_FORGOTTEN,
) -> int:
    """Sampler pods that died, or ended in good order and were replaced by the same kind of pod.

    A pool that shrinks or rolls ends pods in good order, too: those have no successor with the
    same template, whose name up to the last dash is that of their ReplicaSet.

    Args:
        samplers: the registrations of a run.
        suspended: times within suspensions, each of which ended all pods that were there. Their
            successors register as soon as the run goes on, which may be before its next attempt
            begins, and before all of them have.
        forgotten: those that have no registration any more; they count here when they died.
    """
    gone = [
        sampler
        for sampler in samplers
        if sampler.state == SamplerState.GONE and sampler.heartbeat_at >= forgotten.before
    ]
    lost = forgotten.died + sum(not one.drained for one in gone)
    successors = sorted(samplers, key=lambda sampler: sampler.registered_at)
    for ended in sorted((one for one in gone if one.drained), key=lambda one: one.heartbeat_at):
        for later in successors:
            wait = later.registered_at - ended.heartbeat_at
            stopped = any(ended.registered_at <= at <= later.registered_at for at in suspended)
            replaced = 0 <= wait <= REPLACED_SECONDS and not stopped
            if _template(later) == _template(ended) and replaced:
                successors.remove(later)
                lost += 1
                break
    return lost


def _template(sampler: Sampler) -> str:
    return sampler.pod.rpartition("-")[0]
