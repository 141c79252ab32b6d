"""How often an object is looked at by the clock: less and less while nothing changes.

And of thousands each more rarely: looks that find nothing must leave room for those that events ask
for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rl_operator.kube.kinds import Key

MAX_DOUBLINGS = 2
START_SECONDS = 2.0
"""Between two looks at what waits for its start, of which the document store alone may tell."""
LOOKS_PER_SECOND = 50.0
"""At most, by the clock, of those that start, and as many of the others."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Counts looks that found nothing new; what changes in Kubernetes is an event all the same."""

    seconds: float
    """Between two looks while something changes."""
    quiet: dict[Key, int] = field(default_factory=dict)
    starting: set[Key] = field(default_factory=set)

    def saw(self, key: Key, *, changed: bool) -> None:
        """Note whether a look has found anything new."""
        self.starting.discard(key)
        self.quiet[key] = 0 if changed else self.quiet.get(key, 0) + 1

    def is_quiet(self, key: Key) -> bool:
        """Whether the last look has found nothing new."""
        return self.quiet.get(key, 0) > 0

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self.starting.discard(key)
        self.quiet.pop(key, None)

    def wait(self, key: Key) -> float:
        """Seconds until the next look."""
        doublings = min(max(self.quiet.get(key, 0) - 1, 0), MAX_DOUBLINGS)
        return max(self.seconds * 2.0**doublings, len(self.quiet) / LOOKS_PER_SECOND)

    def start(self, key: Key) -> float:
        """Seconds until the next look at one that waits for its start."""
        self.starting.add(key)
        return max(min(self.seconds, START_SECONDS), len(self.starting) / LOOKS_PER_SECOND)
