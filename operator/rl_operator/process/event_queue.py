"""A bounded queue of Kubernetes Events and the loop that posts them, warnings first.

Nothing waits for an event, so none may hold a reconcile up: a full queue drops what comes.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import queue
import threading
from collections.abc import Callable

from rl_operator.kube import metrics

log = logging.getLogger(__name__)

Task = Callable[[], None]
CAPACITY = 5000
"""Events that wait at most, as while the API server does not answer."""
LOG_INTERVAL_SECONDS = 30.0
"""Between two log lines about dropped events: thousands may be dropped at once."""
_WARNING, _NORMAL, _END = range(3)


class EventQueue:
    """Tasks that post events. Any thread may put some; one thread runs ``run``."""

    def __init__(self, *, clock: Callable[[], float], capacity: int = CAPACITY) -> None:
        """Make an empty queue.

        Args:
            clock: monotonic seconds.
            capacity: tasks that wait at most.
        """
        self._clock, self._capacity = clock, capacity
        self._queue: queue.PriorityQueue[tuple[int, int, Task]] = queue.PriorityQueue()
        self._sequence = itertools.count()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._dropped, self._quiet_until = 0, -math.inf
        """Drops that no log line has counted yet, and when the next line may be written."""

    def put(self, task: Task, *, warning: bool = False) -> None:
        """Queue a task, or drop it if the queue is full or closed."""
        if self._closed.is_set():
            self.drop("the process is stopping")
        elif self._queue.qsize() >= self._capacity:
            self.drop(f"{self._capacity} events are waiting already")
        else:
            self._queue.put((_WARNING if warning else _NORMAL, next(self._sequence), task))

    def run(self) -> None:
        """Run tasks, warnings first, until the queue is closed and empty; raise their errors."""
        while (entry := self._queue.get())[0] != _END:
            entry[2]()

    def close(self) -> None:
        """Accept no more tasks; ``run`` returns once those that wait are done."""
        self._closed.set()
        self._queue.put((_END, next(self._sequence), lambda: None))

    def abandon(self) -> None:
        """Drop the tasks that are left because the time for them is up."""
        left = 0
        with contextlib.suppress(queue.Empty):
            while True:
                left += self._queue.get_nowait()[0] != _END
        self._queue.put((_END, next(self._sequence), lambda: None))
        self._quiet_until = -math.inf  # no later line would count them
        self.drop("the process has no more time for them", left)

    def drop(self, reason: str, count: int = 1) -> None:
        """Count events that are not posted, and log it, at most one line per interval."""
        metrics.EVENTS_DROPPED.inc(count)
        with self._lock:
            self._dropped += count
        self._log_drops(reason, now=self._clock())

    def _log_drops(self, reason: str, *, now: float) -> None:
        with self._lock:
            if not self._dropped or now < self._quiet_until:
                return
            count, self._dropped, self._quiet_until = self._dropped, 0, now + LOG_INTERVAL_SECONDS
        log.warning("events dropped: %d, the last because: %s", count, reason)
