"""Times of Kubernetes objects, and ages as kubectl prints them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

MINUTE, HOUR, DAY = 60, 3600, 86400
UNITS = ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1, "s"))
BOTH_BELOW = 10
"""The second unit is shown while there are fewer than this many of the first."""


def now() -> datetime:
    """The present time of this machine."""
    return datetime.now(UTC)


def parse(written: str) -> datetime:
    """An RFC 3339 time, e.g. ``2026-11-24T09:30:00Z``."""
    return datetime.fromisoformat(written).astimezone(UTC)


def age(written: str | None, now: datetime) -> str:
    """Time since ``written``, e.g. ``3d4h``; empty without a time."""
    return "" if not written else short((now - parse(written)).total_seconds())


def of_event(event: Mapping[str, Any]) -> str:
    """When an event (events.k8s.io) was seen last, as it is written; empty without a time."""
    series = event.get("series") or {}
    written = (
        series.get("lastObservedTime")
        or event.get("eventTime")
        or event.get("deprecatedLastTimestamp")
    )
    return str(written or "")


def short(seconds: float) -> str:
    """A duration in at most two units, e.g. ``90s`` as ``1m30s`` and ``100000s`` as ``1d3h``."""
    left = max(0, int(seconds))
    for index, (size, unit) in enumerate(UNITS):
        count, rest = divmod(left, size)
        if not count and size > 1:
            continue
        if count >= BOTH_BELOW or size == 1:
            return f"{count}{unit}"
        smaller, name = UNITS[index + 1]
        return f"{count}{unit}{rest // smaller}{name}" if rest // smaller else f"{count}{unit}"
    return "0s"
