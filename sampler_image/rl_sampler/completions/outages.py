"""What this sampler cannot do without and is away now: meanwhile nothing is claimed."""

from __future__ import annotations

from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving


class Outages:
    """By name, e.g. a scorer's kind, and why."""

    def __init__(self, *, serving: Serving, problems: Problems) -> None:
        self._serving, self._problems = serving, problems
        self._known: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Whether anything is away."""
        return bool(self._known)

    @property
    def known(self) -> dict[str, str]:
        """A copy, by name."""
        return dict(sorted(self._known.items()))

    def note(self, name: str, why: str) -> None:
        """It is away."""
        self._known[name] = why
        self._problems.note(name, why)
        self._serving.changed()

    def clear(self, name: str) -> None:
        """It is back."""
        if self._known.pop(name, None) is not None:
            self._problems.clear(name)
            self._serving.changed()
