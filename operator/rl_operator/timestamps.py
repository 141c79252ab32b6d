"""Times as the API server writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time(text: str | None) -> float | None:
    """Seconds since 1970 of an API server's timestamp."""
    return datetime.fromisoformat(text).timestamp() if text else None


def format_time(seconds: float) -> str:
    """An API timestamp, whole seconds, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
