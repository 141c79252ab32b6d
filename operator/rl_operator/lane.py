"""A lower lane: what nobody waits for is done when nothing else is to be done, or late enough."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Task = Callable[[], None]


class Lane:
    """Tasks in their order. Any thread may put some in, one lets them pass."""

    def __init__(
        self, do: Callable[[Task], object], *, clock: Callable[[], float], seconds: float
    ) -> None:
        """Make an empty lane.

        Args:
            do: does a task, at once or later.
            clock: monotonic seconds.
            seconds: that a task waits at most, as long as ``release`` is called.
        """
        self._do, self._clock, self._seconds = do, clock, seconds
        self._waiting: deque[tuple[float, Task]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, task: Task) -> None:
        """Have a task done by and by."""
        self._waiting.append((self._clock(), task))

    def release(self, *, busy: bool) -> None:
        """Let pass what has waited long enough, or everything where nothing else is to be done."""
        late = self._clock() - self._seconds
        while self._waiting and (not busy or self._waiting[0][0] <= late):
            _, task = self._waiting.popleft()
            self._do(task)
