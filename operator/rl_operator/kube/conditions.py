"""Conditions of a status: what changes of them, and since when they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rl_contracts.errors import Refusal
from rl_contracts.spec.status import Condition
from rl_operator.kube.timestamps import format_time

Truth = Literal["True", "False", "Unknown"]
MESSAGE_CHARACTERS = 1024
STORE_CONDITIONS = ("StorageReachable", "StateStoreReachable")
"""Conditions whose message comes from a store's client and differs between attempts."""

STARTING = "Starting"
"""Reason of a component whose pods are not all ready."""


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """One condition as it is now. The message names the remedy where somebody has to act."""

    type: str
    status: Truth
    reason: str
    message: str

    @classmethod
    def unchanged(cls, before: Condition) -> ConditionUpdate:
        """The condition as it is stored."""
        return cls(before.type, before.status, before.reason, before.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Why an object cannot be reconciled until somebody acts."""

    reason: str
    message: str

    @classmethod
    def of(cls, refusal: Refusal) -> Stall:
        """The stall that a refusal leads to."""
        return cls(reason=refusal.reason, message=str(refusal))


def merged(
    before: Sequence[Condition], updates: Iterable[ConditionUpdate], *, generation: int, now: float
) -> list[Condition]:
    """Conditions as they are stored: the transition time changes only with the status."""
    stored = {condition.type: condition for condition in before}
    return [_merged(stored.get(update.type), update, generation, now) for update in updates]


def _merged(
    before: Condition | None, update: ConditionUpdate, generation: int, now: float
) -> Condition:
    message, since = update.message, format_time(now)
    if before is not None and before.status == update.status:
        since = before.last_transition_time
        if before.reason == update.reason and update.type in STORE_CONDITIONS:
            message = before.message or message
    return Condition(
        type=update.type,
        status=update.status,
        reason=update.reason,
        message=message[:MESSAGE_CHARACTERS],
        last_transition_time=since,
        observed_generation=generation,
    )


def find(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of a type."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: Iterable[Condition], kind: str) -> bool:
    """Whether a condition is there and True."""
    condition = find(conditions, kind)
    return condition is not None and condition.status == "True"
