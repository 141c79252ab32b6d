"""Telling how the demo goes, with the time that has passed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from rich.console import Console

from rl_console.errors import StageFailedError

T = TypeVar("T")
POLL_SECONDS = 0.25
TELL_SECONDS = 5.0


class Stages:
    """Lines on a console, each with the seconds since the demo began."""

    def __init__(self, console: Console, *, started: float) -> None:
        """Begin.

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
        """Say that a stage begins, and how long it took once it is done."""
        self.say(f"{title} …")
        began = time.monotonic()
        yield
        self.say(f"{title}: done in {time.monotonic() - began:.1f} s")

    def wait(
        self,
        look: Callable[[], T | None],
        *,
        what: str,
        seconds: float,
        describe: Callable[[], str],
        failed: Callable[[], StageFailedError],
    ) -> T:
        """Look again and again until there is something, and return it.

        Args:
            look: returns what is waited for, or None.
            what: is waited for.
            seconds: longest time.
            describe: how far it is, for the line that is printed every few seconds.
            failed: what to raise when the time is over.
        """
        began = reported = time.monotonic()
        while True:
            result = look()
            if result is not None:
                return result
            now = time.monotonic()
            if now - began > seconds:
                raise failed()
            if now - reported >= TELL_SECONDS:
                reported = now
                self.say(f"waiting {now - began:.0f} s for {what}: {describe()}")
            time.sleep(POLL_SECONDS)
