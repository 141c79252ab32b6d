"""The work queue as workers of an event loop wait on it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Generic, TypeVar

from rl_operator.queue import WorkQueue

K = TypeVar("K")


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

    def add(self, key: K, within: float = 0.0) -> None:
        """As WorkQueue.add."""
        self._queue.add(key, within=within)
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
