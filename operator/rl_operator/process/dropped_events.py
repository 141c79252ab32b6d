"""Counts the events that are given up, and says so now and then: thousands may go at once."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from rl_operator.kube import metrics

log = logging.getLogger(__name__)

QUIET_SECONDS = 30.0


class GivenUp:
    """How many are lost, and why the last one was. For any thread."""

    def __init__(self, *, clock: Callable[[], float], seconds: float = QUIET_SECONDS) -> None:
        """Count from 0.

        Args:
            clock: monotonic seconds.
            seconds: between two lines at least.
        """
        self._clock, self._seconds = clock, seconds
        self._lock = threading.Lock()
        self._untold, self._why, self._quiet_until = 0, "", -math.inf

    def add(self, why: str, number: int = 1) -> None:
        """Count some; the first is told at once."""
        metrics.EVENTS_GIVEN_UP.inc(number)
        with self._lock:
            self._untold, self._why = self._untold + number, why
        self.tell()

    def tell(self, *, at_last: bool = False) -> None:
        """Say what nobody was told of, unless there was a line just now; at last in any case."""
        with self._lock:
            now = self._clock()
            if not self._untold or (now < self._quiet_until and not at_last):
                return
            number, self._untold, self._quiet_until = self._untold, 0, now + self._seconds
            why = self._why
        log.warning("events given up: %d; the last one: %s", number, why)
