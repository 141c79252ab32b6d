"""What stands in this sampler's way at the moment: logged once, shown in its heartbeat."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

SHOWN_CHARACTERS = 600
QUIET_SECONDS = 30.0


class Problems:
    """Standing problems by topic, e.g. ``store`` or ``policy``."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._standing: dict[str, str] = {}
        self._told: dict[str, float] = {}

    def note(self, topic: str, message: str) -> None:
        """A topic has this problem now; the log hears of a topic once in a while."""
        news = self._standing.get(topic) != message
        if news and self._clock() - self._told.get(topic, -QUIET_SECONDS) >= QUIET_SECONDS:
            logger.warning("%s: %s", topic, message)
            self._told[topic] = self._clock()
        self._standing[topic] = message

    def clear(self, topic: str) -> None:
        """A topic has no problem any more."""
        if self._standing.pop(topic, None) is not None:
            logger.info("%s: well again", topic)
            self._told.pop(topic, None)

    @property
    def topics(self) -> list[str]:
        """What has a problem now."""
        return sorted(self._standing)

    def __str__(self) -> str:
        """All of them in one line; empty when there is none."""
        shown = "; ".join(f"{topic}: {text}" for topic, text in sorted(self._standing.items()))
        return shown if len(shown) <= SHOWN_CHARACTERS else shown[: SHOWN_CHARACTERS - 1] + "…"
