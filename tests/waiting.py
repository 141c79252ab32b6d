"""Waiting for a condition with a deadline, and watching that nothing happens for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")
POLL_SECONDS = 0.05
HUNG_SECONDS = 300.0
"""A wait that long is a hang, on a busy machine too; the time itself is no expectation."""


def until(
    look: Callable[[], T | None],
    *,
    what: str,
    seconds: float = HUNG_SECONDS,
    seen: Callable[[], object] | None = None,
    interval: float = POLL_SECONDS,
) -> T:
    """Look until there is something true, and return it; the test fails after ``seconds``.

    Args:
        look: returns what is waited for, or something false.
        what: is waited for.
        seconds: the deadline.
        seen: what to show of the world when the deadline has passed.
        interval: seconds between two looks.
    """
    deadline = time.monotonic() + seconds
    while True:
        result = look()
        if result:
            return result
        if time.monotonic() > deadline:
            shown = f"; seen: {seen()}" if seen else f"; last look: {result!r}"
            pytest.fail(f"waited {seconds:.0f} s for {what}{shown}")
        time.sleep(interval)


def throughout(
    look: Callable[[], str], *, seconds: float, interval: float = 5 * POLL_SECONDS
) -> None:
    """Look for ``seconds``; the test fails as soon as ``look`` returns a complaint."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        complaint = look()
        if complaint:
            pytest.fail(complaint)
        time.sleep(interval)
