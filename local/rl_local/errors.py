"""Errors that a person can act on; the command line prints them without a traceback."""

from __future__ import annotations

from pathlib import Path

TAIL_LINES = 25


class LocalError(Exception):
    """An error that the user can fix; the message says what failed and what to do."""


class CommandFailedError(LocalError):
    """A program failed or exceeded its time limit; the message has the last lines of its log."""

    def __init__(self, label: str, reason: str, log: Path) -> None:
        super().__init__(f"{label}: {reason}\nlast lines of {log}:\n{tail(log)}")


class DeadlinePassedError(LocalError):
    """A wait exceeded its time limit; the message names what was awaited."""


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The last ``lines`` lines of ``log``, indented, or a remark when it is missing or empty."""
    if not log.exists():
        return "  (no log)"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        text = file.read().decode(errors="replace")
    return "\n".join(f"  {line}" for line in text.splitlines()[-lines:]) or "  (empty)"
