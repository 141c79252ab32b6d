"""Conditions: what is said, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rl_contracts.errors import Refusal
from rl_contracts.spec.status import Condition
from rl_operator.kube.timestamps import format_time

Truth = Literal["True", "False", "Unknown"]
STORE_CONDITIONS = ("StorageReachable", "StateStoreReachable")
"""Conditions whose message is a client's own words, which differ from one attempt to the next."""

STARTING = "Starting"
"""Reason of a part whose pods are not all ready; the message, if any, is what keeps one of them."""


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """One condition as it is now."""

    type: str
    status: Truth
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Why a job cannot go on until somebody does something."""

    reason: str
    message: str

    @classmethod
    def of(cls, refusal: Refusal) -> Stall:
        """The stall that a refusal leads to."""
        return cls(reason=refusal.reason, message=str(refusal))


def merged(
    before: Sequence[Condition], said: Iterable[ConditionUpdate], *, generation: int, now: float
) -> list[Condition]:
    """Conditions as they are stored: the time changes only when the status does."""
    known = {one.type: one for one in before}
    return [_merged(known.get(one.type), one, generation, now) for one in said]


def _merged(
    before: Condition | None, said: ConditionUpdate, generation: int, now: float
) -> Condition:
    same = before is not None and before.status == said.status
    message = said.message
    if (
        before is not None
        and same
        and before.reason == said.reason
        and said.type in STORE_CONDITIONS
    ):
        message = before.message
    return Condition(
        type=said.type,
        status=said.status,
        reason=said.reason,
        message=message[:1024],
        last_transition_time=before.last_transition_time
        if before is not None and same
        else format_time(now),
        observed_generation=generation,
    )


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of a type."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: Iterable[Condition], kind: str) -> bool:
    """Whether a condition is there and True."""
    found = find(conditions, kind)
    return found is not None and found.status == "True"
