"""How often an object is looked at: less and less while nothing changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from rl_operator.kinds import Key

MAX_DOUBLINGS = 2


@dataclass(frozen=True, slots=True)
class Pace:
    """Counts looks that found nothing new; what changes in Kubernetes is an event all the same."""

    seconds: float
    """Between two looks while something changes."""
    quiet: dict[Key, int] = field(default_factory=dict)

    def saw(self, key: Key, *, changed: bool) -> None:
        """Note whether a look has found anything new."""
        self.quiet[key] = 0 if changed else self.quiet.get(key, 0) + 1

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self.quiet.pop(key, None)

    def wait(self, key: Key) -> float:
        """Seconds until the next look."""
        doublings = min(max(self.quiet.get(key, 0) - 1, 0), MAX_DOUBLINGS)
        return float(self.seconds * 2.0**doublings)
