"""Timestamps of the API server."""

from __future__ import annotations

import functools
import math
from datetime import UTC, datetime


def parse_time(text: str | None) -> float | None:
    """Seconds since 1970 of an API timestamp; None for None."""
    return datetime.fromisoformat(text).timestamp() if text else None


def format_time(seconds: float) -> str:
    """An API timestamp, whole seconds, UTC."""
    return _formatted(math.floor(seconds))


@functools.lru_cache(maxsize=64)
def _formatted(seconds: int) -> str:
    """Cached: one reconcile formats the same few times over and over."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
