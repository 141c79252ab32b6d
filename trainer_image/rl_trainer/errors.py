"""Ends of an attempt that neither the manifest nor another part of the product caused."""

from __future__ import annotations

from rl_contracts.errors import RLError


class TrainingFailedError(RLError):
    """This attempt cannot go on; another one may. Becomes the run's outcome."""

    def __init__(self, *, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class TerminatedError(RLError):
    """The pod got SIGTERM; raised at a safe point."""

    def __init__(self) -> None:
        super().__init__("stopped by SIGTERM")


class OutOfMemoryError(Exception):
    """The device had no memory left; the message has the step, the peak and what to change.

    No RLError: other ranks wait inside of a collective, and would never report how theirs went.
    """

    reason = "OutOfMemory"
