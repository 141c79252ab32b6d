"""A lower lane: what nobody waits for is done when nothing else is to be done, or late enough."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

Task = Callable[[], None]
MOST = 5000
"""More than wait while an API server answers: then the oldest are given up."""


class UnderWay(Protocol):
    """What is being done, as ``concurrent.futures`` tells it."""

    def done(self) -> bool:
        """Whether it has ended."""

    def result(self) -> object:
        """Raises what it has ended with."""


class Lane:
    """Tasks in their order. Any thread may put some in, one lets them pass, one does them."""

    def __init__(
        self,
        start: Callable[[Task], UnderWay],
        *,
        clock: Callable[[], float],
        seconds: float,
        most: int = MOST,
    ) -> None:
        """Make an empty lane.

        Args:
            start: does what it is given in another thread, one at a time.
            clock: monotonic seconds.
            seconds: that a task waits at most, as long as ``release`` is called and those before
                it are done.
            most: that wait; of more the oldest are dropped, which is logged.
        """
        self._start, self._clock, self._seconds, self._most = start, clock, seconds, most
        self._waiting: deque[tuple[float, Task]] = deque()
        self._busy = True
        self._under_way: UnderWay | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, task: Task) -> None:
        """Have a task done by and by."""
        self._waiting.append((self._clock(), task))
        if len(self._waiting) > self._most:
            self._waiting.popleft()
            log.warning("one of %d that wait is given up", self._most)

    def release(self, *, busy: bool) -> None:
        """Let pass what has waited long enough, or everything where nothing else is to be done.

        Raises what a task has raised.
        """
        self._busy = busy
        if self._under_way is not None:
            if not self._under_way.done():
                return  # it goes on with what may pass now
            self._under_way.result()
        self._under_way = self._start(self._pass) if self._may_pass() else None

    def end(self) -> None:
        """Let everything pass after what is under way, without waiting for it."""
        self._busy = False
        self._start(self._pass)

    def _pass(self) -> None:
        while self._may_pass():
            _, task = self._waiting.popleft()
            task()

    def _may_pass(self) -> bool:
        late = self._clock() - self._seconds
        return bool(self._waiting) and (not self._busy or self._waiting[0][0] <= late)
