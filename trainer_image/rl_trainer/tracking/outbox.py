"""The queue between the trainer and a tracker, which may be slow, down or gone."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice

from rl_contracts.errors import RLError
from rl_trainer.tracking.entries import Entry
from rl_trainer.tracking.tracker import Tracker

log = logging.getLogger(__name__)

CAPACITY = 1000
BATCH = 200
SAVE_SECONDS = 60.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
TRIES_AT_THE_END = 3
"""A short run may end before its tracker was contacted: a lost answer must not be the last try."""


class Outbox:
    """Hands entries to a tracker on a thread of its own.

    The trainer never waits: when the queue is full the oldest entry is dropped, counted and logged.
    Entries that a tracker refuses are retried after pauses that double. Entries of earlier attempts
    are made as the tracker takes them, so they need no room in the queue. They come before those of
    this one; but when little time is left, after them where the tracker takes any order.

    Args:
        tracker: used by the thread alone.
        upload: keeps its files.
        capacity: entries that may wait.
        clock: seconds.
    """

    def __init__(
        self,
        tracker: Tracker,
        *,
        upload: Callable[[Tracker], None],
        capacity: int = CAPACITY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tracker, self._upload, self._clock = tracker, upload, clock
        self._capacity = capacity
        self._changed = threading.Condition()
        self._waiting: deque[Entry] = deque()
        self._history: Iterator[Entry] = iter(())
        """Comes before what waits, unless the outbox is being closed."""
        self._history_left = 0
        self._lost, self._held, self._closing = 0, 0, False
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"tracking-{tracker.name}")
        self._thread: Future[None] | None = None

    @property
    def name(self) -> str:
        """Name of the tracker."""
        return self._tracker.name

    @property
    def behind(self) -> int:
        """Entries that the tracker has not taken, those that were dropped included."""
        with self._changed:
            return self._lost + self._held + self._history_left + len(self._waiting)

    def go_on(self, history: Iterator[Entry], *, count: int) -> None:
        """Take the entries of earlier attempts, ``count`` of them, before any other; once."""
        if count:
            self._history, self._history_left = history, count
            self._thread = self._executor.submit(self._work)

    def put(self, entries: Sequence[Entry]) -> None:
        """Take entries; returns at once. The first ones begin the thread."""
        if self._thread is None:
            self._thread = self._executor.submit(self._work)
        room = 0 if self._thread.done() else self._capacity
        with self._changed:
            before = self._lost
            self._waiting.extend(entries)
            while len(self._waiting) > room:
                self._waiting.popleft()
                self._lost += 1
            self._changed.notify_all()
            if self._lost and not before:
                log.warning("%s: entries are being lost%s", self.name, self._why())

    def close(self, *, seconds: float) -> None:
        """Give the tracker ``seconds`` to take the waiting entries; the rest is lost."""
        if self._thread is None:
            return
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        wait([self._thread], timeout=seconds)
        self._executor.shutdown(wait=False, cancel_futures=True)
        with self._changed:
            self._lost += len(self._waiting) + self._held + self._history_left
            self._waiting.clear()
            # A tracker that was only slow goes on: there must be nothing left for it to take.
            self._history = iter(())
            self._held = self._history_left = 0
            if self._lost or not self._thread.done():
                log.warning("%s: %d entries were lost%s", self.name, self._lost, self._why())

    def _why(self) -> str:
        if self._thread is None or not self._thread.done():
            return ""
        error = self._thread.exception()
        return f": {type(error).__name__}: {error}"[:500] if error is not None else ""

    def _work(self) -> None:
        saved, unsaved = self._clock(), False
        while True:
            batch, closing = self._take(until=saved + SAVE_SECONDS if unsaved else None)
            if batch:
                self._again(partial(self._tracker.write, batch))
                self._held, unsaved = 0, True
            if unsaved and (closing or self._clock() - saved >= SAVE_SECONDS):
                self._again(self._save)
                saved, unsaved = self._clock(), False
            if closing and not batch:
                self._again(self._end)
                return

    def _take(self, *, until: float | None) -> tuple[list[Entry], bool]:
        """What is next, and whether it is the last; waits for either, or for a time."""
        with self._changed:
            taken: list[Entry] = []
            if not (self._closing and self._waiting and self._tracker.any_order):
                taken = list(islice(self._history, BATCH))
                self._history_left -= len(taken)
            while not taken and not self._waiting and not self._closing:
                left = None if until is None else until - self._clock()
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            if not taken:
                taken = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._held = len(taken)
            return taken, self._closing and not self._waiting and self._history_left <= 0

    def _save(self) -> None:
        self._tracker.save()
        self._upload(self._tracker)

    def _end(self) -> None:
        self._tracker.close()
        self._upload(self._tracker)

    def _again(self, act: Callable[[], None]) -> None:
        """Try until it works; after some failures while closing the error is raised."""
        pause, left = FIRST_PAUSE_SECONDS, TRIES_AT_THE_END
        while True:
            try:
                act()
                break
            except RLError as error:
                if pause == FIRST_PAUSE_SECONDS:
                    log.warning("%s: %s; it is tried again", self.name, error)
                with self._changed:
                    closing = self._closing
                    left -= closing
                    if not left:
                        raise
                    self._changed.wait_for(
                        lambda: self._closing and not closing,  # noqa: B023
                        timeout=FIRST_PAUSE_SECONDS if closing else pause,
                    )
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        if pause > FIRST_PAUSE_SECONDS:
            log.info("%s: works again", self.name)
