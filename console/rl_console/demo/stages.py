"""Prints the demo's progress with the elapsed time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from rich.console import Console

from rl_console.errors import StageFailedError

T = TypeVar("T")
POLL_SECONDS = 0.25
REPORT_SECONDS = 5.0


class Stages:
    """Lines on a console, each with the seconds since the demo began."""

    def __init__(self, console: Console, *, started: float) -> None:
        """Print to a console.

        Args:
            console: where to print.
            started: when the demo began, on the monotonic clock.
        """
        self.console = console
        self._started = started

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(f"[{self.elapsed:6.1f} s] {text}", markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Print that a stage begins, and how long it took when it is done."""
        self.say(f"{title} …")
        began = time.monotonic()
        yield
        self.say(f"{title}: done in {time.monotonic() - began:.1f} s")

    def wait(
        self,
        poll: Callable[[], T | None],
        *,
        what: str,
        seconds: float,
        describe: Callable[[], str],
        failed: Callable[[], StageFailedError],
    ) -> T:
        """Poll until there is a result, and return it.

        Args:
            poll: returns the result, or None while there is none.
            what: what is awaited, for messages.
            seconds: longest time.
            describe: returns the progress, printed every few seconds.
            failed: builds the error to raise when the time is over.
        """
        began = reported = time.monotonic()
        while True:
            result = poll()
            if result is not None:
                return result
            now = time.monotonic()
            if now - began > seconds:
                raise failed()
            if now - reported >= REPORT_SECONDS:
                reported = now
                self.say(f"waiting {now - began:.0f} s for {what}: {describe()}")
            time.sleep(POLL_SECONDS)
