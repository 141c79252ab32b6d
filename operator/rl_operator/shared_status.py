"""What a shared pool says of who has it and who waits."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.spec.status import SamplerPoolStatus
from rl_operator.assignment import Turn
from rl_operator.conditions import Said
from rl_operator.events import Note

SERVED = ("serving", "version", "target_version", "lag", "lagging")
"""Counters of the run that is served: none while there is no run."""


def fields(turn: Turn) -> dict[str, object]:
    """The part of the status that is about turns."""
    found: dict[str, object] = {
        "assignment": turn.holder,
        "assignment_epoch": turn.epoch,
        "waiting": turn.waiting(),
        "waiting_jobs": len(turn.queue),
    }
    return found if turn.holder is not None else {**found, **dict.fromkeys(SERVED, 0)}


def said(turn: Turn, others: Sequence[Said], *, namespace: str) -> list[Said]:
    """The pool's conditions with who has it; ``others`` are what any pool says."""
    holder = turn.holder
    if holder is not None:
        message = f"RLJob {namespace}/{holder.job} has it since {holder.since}."
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
    kept = [one for one in others if one.type not in ("Ready", "Reconciling")]
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
    if after.assignment is not None:
        return [Note("PoolAssigned", f"Given to RLJob {after.assignment.job}.")]
    last = before.assignment.job if before.assignment is not None else "a run that is not known"
    return [Note("PoolReleased", f"Taken from RLJob {last}.")]
