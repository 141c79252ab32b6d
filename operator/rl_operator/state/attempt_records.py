"""What a status says of its current attempt."""

from __future__ import annotations

from rl_contracts.spec.status import AttemptStatus, RLJobStatus

REFUSED_EXIT_CODE = 2
"""Of a trainer that found a mistake that only the user can mend."""


def ended(status: RLJobStatus) -> bool:
    """Whether the status's attempt is known to have ended."""
    record = current(status)
    if record is not None and record.result != "Active":
        return True
    return status.last_failure is not None and status.last_failure.attempt == status.attempt


def current(status: RLJobStatus) -> AttemptStatus | None:
    """The record of the status's attempt."""
    found = status.attempts[-1] if status.attempts else None
    return found if found is not None and found.attempt == status.attempt else None


def halted(status: RLJobStatus) -> bool:
    """Whether the status's attempt was stopped for a suspension."""
    record = current(status)
    return record is not None and record.result == "Suspended"


def refused(status: RLJobStatus) -> bool:
    """Whether the status's attempt ended because the user must change something."""
    failure = status.last_failure
    if failure is None or failure.attempt != status.attempt:
        return False
    return failure.exit_code == REFUSED_EXIT_CODE
