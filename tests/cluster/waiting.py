"""Waiting for something of a cluster, on the cores that the cluster itself has to live on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests import waiting

T = TypeVar("T")
POLL_SECONDS = 0.25
"""Most checks run kubectl or send a request; the awaited states last for seconds."""


def until(
    look: Callable[[], T | None],
    *,
    what: str,
    seconds: float = waiting.HUNG_SECONDS,
    seen: Callable[[], object] | None = None,
) -> T:
    """``tests.waiting.until`` with a pause between two checks."""
    return waiting.until(look, what=what, seconds=seconds, seen=seen, interval=POLL_SECONDS)
