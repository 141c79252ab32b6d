"""Backoff for versions that cannot be staged or loaded."""

from __future__ import annotations

FIRST_SECONDS = 0.5
MAX_SECONDS = 30.0


class Backoff:
    """When a failed version may be tried again. ``now`` is monotonic, in seconds."""

    def __init__(self) -> None:
        self._failures: dict[int, int] = {}
        self._until: dict[int, float] = {}

    def failed(self, version: int, *, now: float) -> None:
        """Record a failure; each failure of a version doubles its wait."""
        failures = self._failures.get(version, 0)
        wait = FIRST_SECONDS * 2.0 ** min(failures, 10)
        self._failures[version] = failures + 1
        self._until[version] = now + min(wait, MAX_SECONDS)

    def due(self, version: int, *, now: float) -> bool:
        """Whether a version may be tried; a version without failures always may."""
        return now >= self._until.get(version, now)

    def succeeded(self, version: int) -> None:
        """Forget the failures of this version and of older versions."""
        for failed in [failed for failed in self._until if failed <= version]:
            del self._until[failed], self._failures[failed]
