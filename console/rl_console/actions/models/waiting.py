"""Waits of the commands for models: until a deadline, and what is awaited is said."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rl_console.errors import TimeOverError

POLL_SECONDS = 1.0


def note(text: str) -> None:
    """Say what is being done, on standard error."""
    print(text, file=sys.stderr, flush=True)


@dataclass(slots=True, kw_only=True)
class Wait:
    """One deadline for all that a command waits for."""

    seconds: float
    """From now to the deadline."""
    say: Callable[[str], None] = note
    _ends: float = field(init=False)
    _doing: str = field(default="", init=False)

    def __post_init__(self) -> None:
        """Begin."""
        self._ends = time.monotonic() + self.seconds

    def tell(self, doing: str) -> None:
        """Say what is being done, unless it was said last."""
        if doing != self._doing:
            self.say(doing)
            self._doing = doing

    def pause(self, problem: str, *, remedy: str = "Give it longer with --timeout") -> None:
        """Sleep until the state is read again.

        Args:
            problem: what is not reached yet, for the message at the deadline.
            remedy: for the same message.

        Raises:
            TimeOverError: the deadline is over; with what was being done.
        """
        if time.monotonic() > self._ends:
            doing = f": {self._doing}" if self._doing else ""
            raise TimeOverError(f"{problem} after {self.seconds:.0f} s{doing}", remedy=remedy)
        time.sleep(POLL_SECONDS)
