"""Current problems of this sampler: logged once, shown in its heartbeat and metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

SHOWN_CHARACTERS = 600
QUIET_SECONDS = 30.0


class Problems:
    """Current problems by topic, such as ``store`` or ``policy``."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._standing: dict[str, str] = {}
        self._last_logged: dict[str, float] = {}

    def note(self, topic: str, message: str) -> None:
        """Record a topic's problem; a topic is logged at most once in ``QUIET_SECONDS``."""
        changed = self._standing.get(topic) != message
        if (
            changed
            and self._clock() - self._last_logged.get(topic, -QUIET_SECONDS) >= QUIET_SECONDS
        ):
            logger.warning("%s: %s", topic, message)
            self._last_logged[topic] = self._clock()
        self._standing[topic] = message

    def clear(self, topic: str) -> None:
        """Record that a topic's problem is resolved."""
        if self._standing.pop(topic, None) is not None:
            logger.info("%s: resolved", topic)
            self._last_logged.pop(topic, None)

    @property
    def topics(self) -> list[str]:
        """Topics that have a problem now, sorted."""
        return sorted(self._standing)

    def __str__(self) -> str:
        """All problems in a line; empty when there are none."""
        shown = "; ".join(f"{topic}: {text}" for topic, text in sorted(self._standing.items()))
        return shown if len(shown) <= SHOWN_CHARACTERS else shown[: SHOWN_CHARACTERS - 1] + "…"
