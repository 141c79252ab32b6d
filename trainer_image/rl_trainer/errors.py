"""Ends of an attempt that neither the manifest nor another part of the product caused."""

from __future__ import annotations

from typing import Self

from rl_contracts.disk import DiskFullError
from rl_contracts.errors import (
    IntegrityError,
    ObjectMissingError,
    RLError,
    StoreUnavailableError,
)

REASONS: dict[type[RLError], str] = {
    StoreUnavailableError: "StoreUnavailable",
    IntegrityError: "StoredDataCorrupt",
    ObjectMissingError: "StoredDataMissing",
    DiskFullError: "DiskFull",
}
"""Of a failed attempt, by the kind of error that ended it, on whichever rank."""


class TrainingFailedError(RLError):
    """This attempt cannot go on; another one may. Becomes the run's outcome."""

    def __init__(self, *, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class TerminatedError(RLError):
    """The pod got SIGTERM; raised at a safe point."""

    def __init__(self) -> None:
        super().__init__("stopped by SIGTERM")


class BrokenOffError(Exception):
    """This rank left a computation in the middle. Becomes the run's outcome on rank 0.

    No RLError: other ranks wait inside of a collective, and would never report how theirs went. So
    the process ends instead of reporting.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class OutOfMemoryError(BrokenOffError):
    """The device had no memory left; the message has the step, the peak and what to change."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="OutOfMemory")


class ShareUnreadableError(BrokenOffError):
    """A rank cannot read what it has to train.

    What a rank is known to need it reads before the computation (``RankWork.take``).
    """

    @classmethod
    def of(cls, what: str, error: RLError) -> Self:
        """The error where a store does not give something."""
        reason = reason_of(error) or "StoreUnavailable"
        return cls(f"cannot read {what} of this rank: {error}", reason=reason)


def reason_of(error: RLError) -> str | None:
    """The reason of an attempt that failed by this error; None: it has none of its own."""
    if isinstance(error, TrainingFailedError):
        return error.reason
    return next((reason for kind, reason in REASONS.items() if isinstance(error, kind)), None)
