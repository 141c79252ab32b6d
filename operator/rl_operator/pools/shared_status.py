"""What a shared pool says of who has it and who waits."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.spec.status import SamplerPoolStatus
from rl_operator.kube.conditions import Said
from rl_operator.pools.assignment import Turn
from rl_operator.process.events import Note

SERVED = ("serving", "version", "target_version", "lag", "lagging")
"""Counters of the run that is served: none while there is no run."""


def fields(turn: Turn) -> dict[str, object]:
    """The part of the status that is about turns."""
    found: dict[str, object] = {
        "assignment": turn.holder,
        "beside": list(turn.holders[1:]),
        "assignment_epoch": turn.epoch,
        "assignment_began": turn.began,
        "waiting": turn.waiting(),
        "waiting_jobs": len(turn.queue),
    }
    return found if turn.holders else {**found, **dict.fromkeys(SERVED, 0), "runs": []}


def said(turn: Turn, others: Sequence[Said], *, namespace: str) -> list[Said]:
    """The pool's conditions with who has it; ``others`` are what any pool says."""
    if turn.holders:
        message = " ".join(
            f"RLJob {namespace}/{holder.job} has it since {holder.since}."
            for holder in turn.holders
        )
        return [*others, Said("Assigned", "True", "Assigned", message)]
    if turn.left or turn.queue:
        pods = ", ".join(sorted(one.name for one in turn.left)[:5])
        first = f": {pods}" if pods else ", says the Deployment"
        message = f"Pods of the last run have to end first{first}."
        going = Said("Assigned", "False", "HandingOn", message)
        return [*_handing_on(others, message), going]
    return [*others, Said("Assigned", "False", "Unassigned", "No run asks for it.")]


def _handing_on(others: Sequence[Said], message: str) -> list[Said]:
    """Not ready while pods of the last run are there, whatever they are like."""
    kept = [other for other in others if other.type not in ("Ready", "Reconciling")]
    if any(one.type == "Stalled" for one in kept):
        return list(others)
    return [
        Said("Ready", "False", "HandingOn", message),
        Said("Reconciling", "True", "HandingOn", message),
        *kept,
    ]


def notes(before: SamplerPoolStatus, after: SamplerPoolStatus) -> list[Note]:
    """Events of a change of hands."""
    if before.assignment_epoch == after.assignment_epoch:
        return []
    had, have = _jobs(before), _jobs(after)
    released = [Note("PoolReleased", f"Taken from RLJob {had[key]}.") for key in had.keys() - have]
    assigned = [Note("PoolAssigned", f"Given to RLJob {have[key]}.") for key in have.keys() - had]
    if released or assigned:
        return sorted([*released, *assigned], key=lambda one: (one.reason, one.message))
    return [Note("PoolReleased", "Taken from a run that is not known.")]


def _jobs(status: SamplerPoolStatus) -> dict[str, str]:
    """Jobs that have the pool, by uid."""
    first = status.assignment
    there = (first, *status.beside) if first is not None else ()
    return {one.uid: one.job for one in there}
