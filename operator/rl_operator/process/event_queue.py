"""A lower lane: what nobody waits for is done when nothing else is to be done, or late enough.

What is urgent passes it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from rl_operator.process.dropped_events import GivenUp

log = logging.getLogger(__name__)

Task = Callable[[], None]
MOST = 5000
"""More than wait while an API server answers: then the oldest are given up."""


class UnderWay(Protocol):
    """What is being done, as ``concurrent.futures`` tells it."""

    def done(self) -> bool:
        """Whether it has ended."""

    def cancelled(self) -> bool:
        """Whether it was never begun, and will not be."""

    def result(self) -> object:
        """Raises what it has ended with."""

    def exception(self) -> BaseException | None:
        """What it has ended with."""


class Lane:
    """Tasks in their order, but what is urgent first.

    Any thread may put some in, one lets them pass, one does them.
    """

    def __init__(
        self,
        start: Callable[[Task], UnderWay],
        *,
        clock: Callable[[], float],
        seconds: float,
        given_up: GivenUp,
        most: int = MOST,
    ) -> None:
        """Make an empty lane.

        Args:
            start: does what it is given in another thread, in its order and one at a time.
            clock: monotonic seconds.
            seconds: that a task waits at most, as long as ``release`` is called and those before
                it are done.
            given_up: hears of those that are not done.
            most: that wait; of more the oldest are given up, urgent ones last.
        """
        self._start, self._clock, self._seconds, self._most = start, clock, seconds, most
        self._given_up = given_up
        self._lock = threading.Lock()
        self._urgent: deque[Task] = deque()
        self._waiting: deque[tuple[float, Task]] = deque()
        self._busy, self._ended = True, False
        self._under_way: UnderWay | None = None
        self._last: Sequence[UnderWay] = ()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._waiting)

    def put(self, task: Task, *, urgent: bool = False) -> None:
        """Have a task done by and by, or, if it is urgent, before those that are not.

        Of one that comes after the end it is told that it is not done.
        """
        with self._lock:
            ended = self._ended
            if urgent and not ended:
                self._urgent.append(task)
            elif not ended:
                self._waiting.append((self._clock(), task))
            full = len(self) > self._most
            if full:
                (self._waiting or self._urgent).popleft()
        if ended or full:
            why = "the process ends" if ended else f"{self._most} wait already"
            self._given_up.add(why)

    def release(self, *, busy: bool) -> None:
        """Let pass what is urgent or has waited long enough; all, where there is no other work.

        Raises what a task has raised.
        """
        self._given_up.tell()
        self._busy = busy
        if self._under_way is not None:
            if not self._under_way.done():
                return  # it goes on with what may pass now
            ended, self._under_way = self._under_way, None
            ended.result()
        self._under_way = self._start(self._pass) if self._may_pass() else None

    def end(self) -> None:
        """Have all that wait done after what is under way, without waiting for it."""
        with self._lock:
            self._ended = True
            rest = [*self._urgent, *(task for _, task in self._waiting)]
            self._urgent, self._waiting = deque(), deque()
        last = [] if self._under_way is None else [self._under_way]
        self._last = [*last, *(self._start(task) for task in rest)]

    def close(self) -> None:
        """Tell of those which the end has left undone, and what the others have raised."""
        undone = [one for one in self._last if one.cancelled() or not one.done()]
        if undone:
            self._given_up.add("no time was left for it", len(undone))
        self._given_up.tell(at_last=True)
        done = (one for one in self._last if one.done() and not one.cancelled())
        errors = [error for one in done if (error := one.exception()) is not None]
        if errors:
            log.error("%d failed at the end, the first with this", len(errors), exc_info=errors[0])

    def _pass(self) -> None:
        while (task := self._next()) is not None:
            task()

    def _next(self) -> Task | None:
        with self._lock:
            if not self._may_pass():
                return None
            return self._urgent.popleft() if self._urgent else self._waiting.popleft()[1]

    def _may_pass(self) -> bool:
        if self._urgent or not self._waiting:
            return bool(self._urgent)
        return not self._busy or self._waiting[0][0] <= self._clock() - self._seconds
