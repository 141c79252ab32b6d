"""The work queue as threads wait on it."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from rl_operator.queue import WorkQueue

K = TypeVar("K")


class BlockingWorkQueue(Generic[K]):
    """A work queue that workers wait on. For any thread."""

    def __init__(self, queue: WorkQueue[K]) -> None:
        """Wrap a queue that nobody else uses from now on."""
        self._queue = queue
        self._changed = threading.Condition(threading.Lock())
        self._closed = False

    def __len__(self) -> int:
        with self._changed:
            return len(self._queue)

    @property
    def busy(self) -> bool:
        """As WorkQueue.busy."""
        with self._changed:
            return self._queue.busy

    def add(self, key: K, within: float = 0.0) -> None:
        """As WorkQueue.add."""
        with self._changed:
            self._queue.add(key, within=within)
            self._changed.notify()

    def add_after(self, key: K, delay_seconds: float) -> None:
        """As WorkQueue.add_after."""
        with self._changed:
            self._queue.add_after(key, delay_seconds)
            self._changed.notify()

    def take(self) -> K | None:
        """Wait for a key; None once the queue is closed."""
        with self._changed:
            while not self._closed:
                key = self._queue.take()
                if key is not None:
                    # The others may wait for something older than the next key that is due.
                    self._changed.notify()
                    return key
                self._changed.wait(self._queue.seconds_until_due())
        return None

    def done(self, key: K, *, again_after: float | None) -> None:
        """Work on a key has succeeded; ask for it again after some seconds, or not."""
        with self._changed:
            if again_after is None:
                self._queue.forget(key)
            else:
                self._queue.succeeded(key)
            self._queue.done(key)
            if again_after is not None:
                self._queue.add_after(key, again_after)
            self._changed.notify()

    def failed(self, key: K) -> float:
        """Work on a key has failed; return after how many seconds it comes again."""
        with self._changed:
            self._queue.done(key)
            delay = self._queue.failed(key)
            self._changed.notify()
        return delay

    def close(self) -> None:
        """Give out no more keys, and let those go who wait for one."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
