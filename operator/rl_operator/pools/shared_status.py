"""What a shared pool says of who has it and who waits."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.spec.status import SamplerPoolStatus
from rl_operator.kube.conditions import ConditionUpdate
from rl_operator.pools.assignment import Allocation
from rl_operator.process.events import EventNote

SERVED = ("serving", "version", "target_version", "lag", "lagging")
"""Counters of the run that is served: none while there is no run."""


def fields(allocation: Allocation) -> dict[str, object]:
    """The part of the status that is about turns."""
    found: dict[str, object] = {
        "assignment": allocation.holder,
        "beside": list(allocation.holders[1:]),
        "assignment_epoch": allocation.epoch,
        "assignment_began": allocation.began,
        "waiting": allocation.waiting(),
        "waiting_jobs": len(allocation.queue),
    }
    return found if allocation.holders else {**found, **dict.fromkeys(SERVED, 0), "runs": []}


def said(
    allocation: Allocation, others: Sequence[ConditionUpdate], *, namespace: str
) -> list[ConditionUpdate]:
    """The pool's conditions with who has it; ``others`` are what any pool says."""
    if allocation.holders:
        message = " ".join(
            f"RLJob {namespace}/{holder.job} has it since {holder.since}."
            for holder in allocation.holders
        )
        return [*others, ConditionUpdate("Assigned", "True", "Assigned", message)]
    if allocation.left or allocation.queue:
        pods = ", ".join(sorted(one.name for one in allocation.left)[:5])
        first = f": {pods}" if pods else ", says the Deployment"
        message = f"Pods of the last run have to end first{first}."
        going = ConditionUpdate("Assigned", "False", "HandingOn", message)
        return [*_handing_on(others, message), going]
    return [*others, ConditionUpdate("Assigned", "False", "Unassigned", "No run asks for it.")]


def _handing_on(others: Sequence[ConditionUpdate], message: str) -> list[ConditionUpdate]:
    """Not ready while pods of the last run are there, whatever they are like."""
    kept = [other for other in others if other.type not in ("Ready", "Reconciling")]
    if any(one.type == "Stalled" for one in kept):
        return list(others)
    return [
        ConditionUpdate("Ready", "False", "HandingOn", message),
        ConditionUpdate("Reconciling", "True", "HandingOn", message),
        *kept,
    ]


def notes(before: SamplerPoolStatus, after: SamplerPoolStatus) -> list[EventNote]:
    """Events of a change of hands."""
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
        return sorted([*released, *assigned], key=lambda one: (one.reason, one.message))
    return [EventNote("PoolReleased", "Taken from a run that is not known.")]


def _jobs(status: SamplerPoolStatus) -> dict[str, str]:
    """Jobs that have the pool, by uid."""
    first = status.assignment
    there = (first, *status.beside) if first is not None else ()
    return {one.uid: one.job for one in there}
