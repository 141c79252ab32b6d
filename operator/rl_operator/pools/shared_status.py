"""The part of a shared pool's status that is about the jobs that have it and that wait."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_operator.kube.conditions import ConditionUpdate
from rl_operator.pools.assignment import Allocation
from rl_operator.process.events import EventNote

SERVED = ("serving", "version", "target_version", "lag", "lagging")
"""Counters of the run that is served; 0 while there is none."""


def fields(allocation: Allocation) -> dict[str, object]:
    """Fields about the allocation."""
    fields: dict[str, object] = {
        "assignment": allocation.holder,
        "beside": list(allocation.holders[1:]),
        "assignment_epoch": allocation.epoch,
        "assignment_began": allocation.began,
        "waiting": allocation.waiting(),
        "waiting_jobs": len(allocation.queue),
    }
    return fields if allocation.holders else {**fields, **dict.fromkeys(SERVED, 0), "runs": []}


def conditions(
    allocation: Allocation, others: Sequence[ConditionUpdate], *, namespace: str
) -> list[ConditionUpdate]:
    """A pool's conditions with Assigned; ``others`` are those of any pool."""
    if allocation.holders:
        message = " ".join(
            f"RLJob {namespace}/{holder.job} has it since {holder.since}."
            for holder in allocation.holders
        )
        return [*others, ConditionUpdate("Assigned", "True", "Assigned", message)]
    if allocation.left or allocation.queue:
        pods = ", ".join(sorted(pod.name for pod in allocation.left)[:5])
        rest = f": {pods}" if pods else "; the Deployment still counts some"
        message = f"Waiting for pods of the last run to terminate{rest}."
        releasing = ConditionUpdate("Assigned", "False", "HandingOn", message)
        return [*_not_ready(others, message), releasing]
    message = "No job asks for this pool. An RLJob names it in spec.samplers[].poolRef."
    return [*others, ConditionUpdate("Assigned", "False", "Unassigned", message)]


def _not_ready(others: Sequence[ConditionUpdate], message: str) -> list[ConditionUpdate]:
    """Not Ready while pods of the last run exist, whatever their state."""
    kept = [other for other in others if other.type not in ("Ready", "Reconciling")]
    if any(other.type == "Stalled" for other in kept):
        return list(others)
    return [
        ConditionUpdate("Ready", "False", "HandingOn", message),
        ConditionUpdate("Reconciling", "True", "HandingOn", message),
        *kept,
    ]


def notes(before: SamplerPoolStatus, after: SamplerPoolStatus) -> list[EventNote]:
    """Events of a change of the jobs that have the pool."""
    if before.assignment_epoch == after.assignment_epoch:
        return []
    had, have = _jobs(before), _jobs(after)
    released = [
        EventNote("PoolReleased", f"Taken from RLJob {had[key]}.") for key in had.keys() - have
    ]
    assigned = [
        EventNote("PoolAssigned", f"Given to RLJob {have[key]}.") for key in have.keys() - had
    ]
    if released or assigned:
        return sorted([*released, *assigned], key=lambda note: (note.reason, note.message))
    return [EventNote("PoolReleased", "Taken from an unknown run.")]


def _jobs(status: SamplerPoolStatus) -> dict[str, str]:
    """Names of the jobs that have the pool, by uid."""
    first = status.assignment
    holders = (first, *status.beside) if first is not None else ()
    return {holder.uid: holder.job for holder in holders}
