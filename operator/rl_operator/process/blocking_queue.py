"""The work queue as threads wait on it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from rl_operator.process.work_queue import WorkQueue

K = TypeVar("K")


class BlockingWorkQueue(Generic[K]):
    """A work queue that workers wait on. For any thread.

    Of those that wait one watches: it wakes when the next key is due, and is woken where one is due
    before that. When it has a key it calls another one, who watches in its place; the others sleep.
    Were all to wake at each time and for each change, most would find nothing: while many objects
    start, four of five did.
    """

    def __init__(self, queue: WorkQueue[K], *, clock: Callable[[], float]) -> None:
        """Wrap a queue that nobody else uses from now on.

        Args:
            queue: what is to be worked on.
            clock: monotonic seconds.
        """
        self._queue, self._clock = queue, clock
        lock = threading.Lock()
        self._watching, self._sleeping = threading.Condition(lock), threading.Condition(lock)
        self._lock = lock
        self._asleep = 0
        """Of those that sleep, how many nobody has called."""
        self._wakes_at: float | None = None
        """When the one that watches wakes; ``-inf``: one was called, and has not come yet; None:
        nobody watches, for nobody waits, or nothing is to come."""
        self._closed = False

    def __len__(self) -> int:
        with self._lock:
            return len(self._queue)

    @property
    def busy(self) -> bool:
        """As WorkQueue.busy."""
        with self._lock:
            return self._queue.busy

    def add(self, key: K, within: float = 0.0) -> None:
        """As WorkQueue.add."""
        with self._lock:
            self._queue.add(key, within=within)
            self._call()

    def add_after(self, key: K, delay_seconds: float) -> None:
        """As WorkQueue.add_after."""
        with self._lock:
            self._queue.add_after(key, delay_seconds)
            self._call()

    def seen(self, key: K) -> None:
        """As WorkQueue.seen."""
        with self._lock:
            self._queue.seen(key)

    def take(self) -> K | None:
        """Wait for a key; None once the queue is closed."""
        with self._lock:
            while not self._closed:
                key = self._queue.take()
                if key is not None:
                    self._call()
                    return key
                if self._wakes_at is None:
                    self._watch()
                else:
                    self._sleep()
        return None

    def done(self, key: K, *, again_after: float | None) -> None:
        """Work on a key has succeeded; ask for it again after some seconds, or not."""
        with self._lock:
            if again_after is None:
                self._queue.forget(key)
            else:
                self._queue.succeeded(key)
            self._queue.done(key)
            if again_after is not None:
                self._queue.add_after(key, again_after)
            self._call()

    def failed(self, key: K) -> float:
        """Work on a key has failed; return after how many seconds it comes again."""
        with self._lock:
            self._queue.done(key)
            delay = self._queue.failed(key)
            self._call()
        return delay

    def close(self) -> None:
        """Give out no more keys, and let those go who wait for one."""
        with self._lock:
            self._closed = True
            self._watching.notify_all()
            self._sleeping.notify_all()

    def _call(self) -> None:
        """See that somebody is awake when the next key is due, if anybody waits."""
        due_at = self._queue.due_at()
        if self._wakes_at is None and self._asleep and due_at < math.inf:
            self._asleep -= 1
            self._wakes_at = -math.inf
            self._sleeping.notify()
        elif self._wakes_at is not None and due_at < self._wakes_at:
            self._wakes_at = -math.inf
            self._watching.notify()

    def _watch(self) -> None:
        self._wakes_at = due_at = self._queue.due_at()
        self._watching.wait(None if due_at == math.inf else max(0.0, due_at - self._clock()))
        self._wakes_at = None

    def _sleep(self) -> None:
        self._asleep += 1
        self._sleeping.wait()
        self._wakes_at = None  # it is the one that was called
