"""The API server's clock, from the ``Date`` of its answers.

Timestamps in objects come from it: creation and deletion of pods, and the times in statuses that
are compared with them. A jump of this machine's clock must neither end a job nor start one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from email.utils import parsedate_to_datetime

KEPT_SECONDS = 60.0
"""A correction of the server's clock takes effect after this time."""


class ServerTime:
    """Seconds since 1970 by the API server's clock; by this machine's before the first answer."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        own: Callable[[], float] = time.time,
    ) -> None:
        """Start without an answer.

        Args:
            clock: monotonic seconds.
            own: this machine's seconds since 1970.
        """
        self._clock, self._own = clock, own
        self._told: deque[tuple[float, float]] = deque()
        """Arrival of an answer, and how far the server's clock was ahead of the monotonic one.

        Of the last minute; entries that a later one exceeds are dropped.
        """
        self._last = ("", 0.0)
        self._lock = threading.Lock()

    def note_date(self, date: str) -> None:
        """Note the ``Date`` of an answer; a malformed one is ignored."""
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
        """The present time.

        A ``Date`` is always behind: it is cut to whole seconds and as old as the answer's way. So
        of the last minute's answers the one that is furthest ahead is the most exact.
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
