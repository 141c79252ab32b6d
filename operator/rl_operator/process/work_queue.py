"""A delaying, rate-limited work queue with two priorities, after client-go's ``workqueue``.

A key waits at most once, and no two workers have the same key at a time. A key that is added while
a worker has it comes again afterwards. Changed keys come before periodic requeues.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")

BACKOFF_BASE_SECONDS = 0.5
BACKOFF_MAX_SECONDS = 120.0
MAX_DOUBLINGS = 10
PERIODIC_YIELD_SECONDS = 10.0
"""A periodic requeue yields to keys that have changed until it is this late. Without a limit, the
deadlines of running jobs would not be checked while a thousand others start for minutes."""


@dataclass(frozen=True, slots=True)
class _Request:
    """When a key is due, and its rank among the keys that are due: the lowest comes first."""

    due: float
    rank: float

    def merged(self, other: _Request) -> _Request:
        """Both requests as one that is neither later nor ranked lower than either."""
        return _Request(min(self.due, other.due), min(self.rank, other.rank))


class WorkQueue(Generic[K]):
    """Keys to be worked on. Safe for any number of threads."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        min_interval: Callable[[K], float] = lambda key: 0.0,
        waited: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Make an empty queue.

        Args:
            clock: monotonic seconds.
            jitter: random number in [0, 1); spreads keys that fail at the same time.
            min_interval: seconds between two starts of work on a key that was added. A burst of
                changes leads to one piece of work at once and to one more after this time.
            waited: called for each key that is taken, with the seconds since it was due.
        """
        self._clock, self._jitter = clock, jitter
        self._min_interval, self._waited = min_interval, waited
        self._condition = threading.Condition()
        self._requests: dict[K, _Request] = {}
        """By key; of a key that a worker has: for when the worker is done."""
        self._delayed: list[tuple[float, int, K]] = []
        self._ready: list[tuple[float, int, K]] = []
        """Heaps by due time and by rank. An entry whose key has another request now is skipped."""
        self._sequence = 0
        self._working: set[K] = set()
        self._started: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._closed = False

    def __len__(self) -> int:
        """How many keys are due and wait for a worker."""
        with self._condition:
            now = self._clock()
            requests = self._requests.items()
            return sum(key not in self._working and each.due <= now for key, each in requests)

    def add(self, key: K, *, periodic: bool = False) -> None:
        """Add a key that is due now, or once its minimal interval has passed.

        Args:
            key: the key.
            periodic: nothing has changed; the key yields to changed keys.
        """
        with self._condition:
            now = self._clock()
            started = self._started.get(key)
            wait = 0.0 if started is None else started + self._min_interval(key) - now
            self._request(key, now + max(0.0, wait), periodic=periodic)

    def add_after(self, key: K, seconds: float, *, periodic: bool = False) -> None:
        """Add a key that is due in some seconds. The earliest of several such requests holds."""
        with self._condition:
            self._request(key, self._clock() + max(0.0, seconds), periodic=periodic)

    def add_rate_limited(self, key: K) -> float:
        """Add a key whose work has failed; the delay doubles each time.

        Returns:
            The delay in seconds.
        """
        with self._condition:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            delay = BACKOFF_BASE_SECONDS * 2.0 ** min(failures - 1, MAX_DOUBLINGS)
            delay = min(delay, BACKOFF_MAX_SECONDS) * (1 + self._jitter() / 4)
            self._request(key, self._clock() + delay, periodic=False)
        return delay

    def get(self, *, block: bool = True) -> K | None:
        """Take the next key; ``done`` must follow.

        Args:
            block: wait until a key is due or the queue is closed.

        Returns:
            The key. None once the queue is closed, or when no key is due and ``block`` is false.
        """
        with self._condition:
            while not self._closed:
                key = self._take()
                if key is not None:
                    # The notification of another key may have woken this thread alone.
                    self._condition.notify()
                    return key
                if not block:
                    return None
                self._condition.wait(self._seconds_to_next())
        return None

    def done(self, key: K) -> None:
        """Say that the work on a key has ended, well or not; others may have it again."""
        with self._condition:
            self._working.discard(key)
            request = self._requests.get(key)
            if request is None:
                self._started.pop(key, None)  # nobody wants the key: its object may be gone
            else:
                self._push(key, request)

    def forget(self, key: K) -> None:
        """Reset the backoff of a key whose work has succeeded."""
        with self._condition:
            self._failures.pop(key, None)

    def close(self) -> None:
        """Hand out no more keys, and release the workers that wait."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def _request(self, key: K, due: float, *, periodic: bool) -> None:
        request = _Request(due, due + PERIODIC_YIELD_SECONDS if periodic else due)
        known = self._requests.get(key)
        request = request if known is None else request.merged(known)
        if request == known:
            return
        self._requests[key] = request
        if key not in self._working:
            self._push(key, request)

    def _push(self, key: K, request: _Request) -> None:
        self._sequence += 1
        heapq.heappush(self._delayed, (request.due, self._sequence, key))
        self._condition.notify()

    def _take(self) -> K | None:
        now = self._clock()
        while self._delayed and self._delayed[0][0] <= now:
            due, sequence, key = heapq.heappop(self._delayed)
            request = self._waiting(key)
            if request is not None and request.due == due:
                heapq.heappush(self._ready, (request.rank, sequence, key))
        while self._ready:
            rank, _, key = heapq.heappop(self._ready)
            request = self._waiting(key)
            if request is not None and request.rank == rank:
                del self._requests[key]
                self._working.add(key)
                self._started[key] = now
                self._waited(now - request.due)
                return key
        return None

    def _waiting(self, key: K) -> _Request | None:
        return None if key in self._working else self._requests.get(key)

    def _seconds_to_next(self) -> float | None:
        return max(0.0, self._delayed[0][0] - self._clock()) if self._delayed else None
