"""Services that episodes need and that are down now; nothing is claimed while any is down."""

from __future__ import annotations

from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving


class Outages:
    """Names of services that are down, such as a scorer's kind, with the reasons."""

    def __init__(self, *, serving: Serving, problems: Problems) -> None:
        self._serving, self._problems = serving, problems
        self._known: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Whether any service is down."""
        return bool(self._known)

    @property
    def known(self) -> dict[str, str]:
        """The reasons by name, sorted; a copy."""
        return dict(sorted(self._known.items()))

    def note(self, name: str, why: str) -> None:
        """Record that a service is down."""
        self._known[name] = why
        self._problems.note(name, why)
        self._serving.changed()

    def clear(self, name: str) -> None:
        """Record that a service is up again."""
        if self._known.pop(name, None) is not None:
            self._problems.clear(name)
            self._serving.changed()
