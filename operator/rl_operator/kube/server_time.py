"""The API server's clock, as its answers tell it.

Objects bear its times: when a pod was made, until when it may end, and the times in the statuses
that are compared with them. A jump of this machine's clock must neither end a job nor start one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from email.utils import parsedate_to_datetime

KEPT_SECONDS = 60.0
"""A correction of the server's own clock is followed after so long."""


class ServerTime:
    """Seconds since 1970 as the API server counts them; as this machine does before any answer."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        own: Callable[[], float] = time.time,
    ) -> None:
        """Prepare.

        Args:
            clock: monotonic seconds.
            own: this machine's seconds since 1970.
        """
        self._clock, self._own = clock, own
        self._told: deque[tuple[float, float]] = deque()
        """When an answer came, and how far the server's clock was ahead of the monotonic one.

        Of the last minute; what a later answer was further ahead than is left out.
        """
        self._last = ("", 0.0)
        self._lock = threading.Lock()

    def told(self, date: str) -> None:
        """Take note of an answer's ``Date``; one that is none is passed over."""
        at = self._clock()
        with self._lock:
            if date != self._last[0]:
                self._last = (date, _seconds(date))
            if not self._last[1]:
                return
            ahead = self._last[1] - at
            while self._told and self._told[-1][1] <= ahead:
                self._told.pop()
            self._told.append((at, ahead))

    def now(self) -> float:
        """The present.

        An answer tells the past: whole seconds, cut, and of when it left. So of the last minute's
        the one that is furthest ahead is nearest to the truth.
        """
        at = self._clock()
        with self._lock:
            while len(self._told) > 1 and at - self._told[0][0] > KEPT_SECONDS:
                self._told.popleft()
            if not self._told:
                return self._own()
            return at + self._told[0][1]


def _seconds(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return 0.0
