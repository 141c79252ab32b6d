"""How long a policy that cannot be served is left alone."""

from __future__ import annotations

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0


class Backoff:
    """How long to leave a failing version alone. ``now`` is monotonic, in seconds."""

    def __init__(self) -> None:
        self._failures: dict[int, int] = {}
        self._until: dict[int, float] = {}

    def failed(self, version: int, *, now: float) -> None:
        """Note a failure; doubles the wait for the same version."""
        failures = self._failures.get(version, 0)
        wait = FIRST_SECONDS * 2.0 ** min(failures, 10)
        self._failures[version] = failures + 1
        self._until[version] = now + min(wait, LONGEST_SECONDS)

    def due(self, version: int, *, now: float) -> bool:
        """Whether this version may be tried; one that has not failed always may."""
        return now >= self._until.get(version, now)

    def succeeded(self, version: int) -> None:
        """Forget this version's failures and those of the ones before it."""
        for older in [one for one in self._until if one <= version]:
            del self._until[older], self._failures[older]
