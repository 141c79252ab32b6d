"""The work queue: what changed, once each, in order per key, with delays and backoff.

A key that is added while it is worked on comes again afterwards: nothing is missed and no key is
worked on twice at a time. What is under way is finished before what is new is begun, within bounds:
of many jobs at once the first are soon Ready, instead of all of them late.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")

BACKOFF_BASE_SECONDS = 0.5
BACKOFF_MAX_SECONDS = 120.0
MAX_DOUBLINGS = 10
PATIENCE_SECONDS = 60.0
"""So long what is new waits for what is under way, and then for its turn, one each second: all of
it at once would leave what is under way unfinished, and everything late."""
TURN_SECONDS = 1.0
SHARE = 8
"""Of so many one is new, while little is under way. What begins goes a way of some seconds, most of
which is waiting for others: if the last ones all began at the end, nothing else would be done then.
"""
CROWD = 4
"""Where much is under way, so many new ones come in the time that all of it takes: each of them is
looked at more than a dozen times, and what begins faster than others end makes all of it late."""


class WorkQueue(Generic[K]):
    """Keys to be worked on. Not for threads: all calls come from one event loop."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        jitter: Callable[[], float],
        waited: Callable[[float], None] = lambda seconds: None,
        begins: Callable[[K], bool] = lambda key: False,
        spacing: Callable[[K], float] = lambda key: 0.0,
    ) -> None:
        """Make an empty queue.

        Args:
            clock: monotonic seconds.
            jitter: a random number in [0, 1), to keep failing keys apart.
            waited: told of each key that is taken how many seconds it was due before.
            begins: whether the first work on a key begins something that others finish.
            spacing: seconds from when a key is taken to when it comes again because it was added:
                of several changes within that time there is one look. The first comes at once.
        """
        self._waited = waited
        self._clock = clock
        self._jitter = jitter
        self._ready: dict[K, float] = {}
        """Since when; a dict keeps the order and holds each key once."""
        self._new: dict[K, float] = {}
        """As these, but they may wait for what is under way."""
        self._begins, self._begun = begins, set[K]()
        self._last_begun = float("-inf")
        self._since_begun = 0
        """Keys under way that were taken since."""
        self._working: set[K] = set()
        self._spacing, self._taken = spacing, dict[K, float]()
        self._dirty: set[K] = set()
        self._delayed: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._sequence = 0
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._ready) + len(self._new)

    @property
    def busy(self) -> bool:
        """Whether a key waits for work that is due, or is worked on."""
        return bool(self._ready or self._new or self._working)

    def add(self, key: K) -> None:
        """Ask for a key to be worked on as soon as possible."""
        now = self._clock()
        wait = self._taken.get(key, -math.inf) + self._spacing(key) - now
        waits = key in self._ready or key in self._new
        if wait > 0 and not waits and key not in self._working:
            self.add_after(key, wait)
        else:
            self._add(key, since=now)

    def _add(self, key: K, *, since: float) -> None:
        self._due.pop(key, None)
        if key in self._working:
            self._dirty.add(key)
        elif self._begins(key) and key not in self._begun:
            self._new.setdefault(key, since)
        else:
            self._ready.setdefault(key, since)

    def add_after(self, key: K, delay_seconds: float) -> None:
        """Ask for a key later; of several such wishes the earliest holds."""
        due = self._clock() + max(0.0, delay_seconds)
        if self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._delayed, (due, self._sequence, key))

    def take(self) -> K | None:
        """A key that nobody works on, or None; ``done`` must follow."""
        self._release_due()
        waiting = self._first()
        if not waiting:
            return None
        key, now = next(iter(waiting)), self._clock()
        self._since_begun += 1
        if waiting is self._new:
            self._last_begun, self._since_begun = now, 0
        self._waited(now - waiting.pop(key))
        self._taken[key] = now
        self._working.add(key)
        return key

    def _first(self) -> dict[K, float]:
        """From which the next key comes; empty when there is none."""
        if not self._new:
            return self._ready
        oldest, now = next(iter(self._new.values())), self._clock()
        has_turn = now - oldest >= PATIENCE_SECONDS and now - self._last_begun >= TURN_SECONDS
        has_share = self._since_begun >= max(SHARE, len(self._ready) // CROWD) - 1
        return self._new if has_turn or has_share or not self._ready else self._ready

    def done(self, key: K) -> None:
        """Work on a key has ended."""
        self._working.discard(key)
        if key in self._dirty:
            self._dirty.discard(key)
            self.add(key)

    def succeeded(self, key: K) -> None:
        """Forget a key's failures; it is under way from now on."""
        self._failures.pop(key, None)
        if self._begins(key):
            self._begun.add(key)

    def forget(self, key: K) -> None:
        """Nothing is under way with a key any more."""
        self._failures.pop(key, None)
        self._begun.discard(key)
        self._taken.pop(key, None)

    def failed(self, key: K) -> float:
        """Ask for a failed key again, later each time; return after how many seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = BACKOFF_BASE_SECONDS * 2.0 ** min(failures - 1, MAX_DOUBLINGS)
        delay = min(delay, BACKOFF_MAX_SECONDS) * (1 + self._jitter() / 4)
        self.add_after(key, delay)
        return delay

    def seconds_until_due(self) -> float | None:
        """Time until a delayed key is due; None when there is none."""
        while self._delayed and self._due.get(self._delayed[0][2]) != self._delayed[0][0]:
            heapq.heappop(self._delayed)
        return max(0.0, self._delayed[0][0] - self._clock()) if self._delayed else None

    def _release_due(self) -> None:
        while (wait := self.seconds_until_due()) is not None and wait <= 0:
            due, _, key = heapq.heappop(self._delayed)
            self._add(key, since=due)


class AsyncWorkQueue(Generic[K]):
    """A work queue that workers wait on. Not for threads, either."""

    def __init__(self, queue: WorkQueue[K]) -> None:
        self._queue = queue
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def busy(self) -> bool:
        """As WorkQueue.busy."""
        return self._queue.busy

    def add(self, key: K) -> None:
        """As WorkQueue.add."""
        self._queue.add(key)
        self._wake()

    def add_after(self, key: K, delay_seconds: float) -> None:
        """As WorkQueue.add_after."""
        self._queue.add_after(key, delay_seconds)
        self._wake()

    async def take(self) -> K:
        """Wait for a key."""
        while (key := self._queue.take()) is None:
            await self._changed(self._queue.seconds_until_due())
        # The others may wait for something older than the next key that is due.
        self._wake()
        return key

    def done(self, key: K, *, again_after: float | None) -> None:
        """Work on a key has succeeded; ask for it again after some seconds, or not."""
        if again_after is None:
            self._queue.forget(key)
        else:
            self._queue.succeeded(key)
        self._queue.done(key)
        if again_after is not None:
            self._queue.add_after(key, again_after)
        self._wake()

    def failed(self, key: K) -> float:
        """Work on a key has failed; return after how many seconds it comes again."""
        self._queue.done(key)
        delay = self._queue.failed(key)
        self._wake()
        return delay

    def _wake(self) -> None:
        """Let one of those that wait look again."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _changed(self, seconds: float | None) -> None:
        """Wait for a change, or for so long."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(waiter, seconds)
