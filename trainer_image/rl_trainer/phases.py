"""Where a step's time goes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

WAIT, FORM = "wait", "form"
CRITIC, ANNOTATE, UPDATE = "critic", "annotate", "update"
"""Of the learner: the critic's updates; passes without gradient, e.g. of the reference; the
policy's updates."""
TURN = "turn"
"""Changes of turns with an engine that shares the devices, before a step."""
HAND_OUT, EVALUATE, EXPORT = "hand_out", "evaluate", "export"
"""Between two steps; counted with the later one."""


@dataclass(slots=True)
class Phases:
    """Seconds by phase since the last ``take``."""

    clock: Callable[[], float]
    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Count the time of the block to a phase, also where it ends in an error."""
        started = self.clock()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self.clock() - started

    def take(self) -> dict[str, float]:
        """Return the seconds by phase so far, and reset them."""
        taken, self.seconds = self.seconds, {}
        return taken
