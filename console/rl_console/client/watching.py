"""States of a job as they change, for plain and asynchronous loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from rl_console.actions.watching import SILENT_SECONDS
from rl_console.errors import ClusterUnavailableError, TimeOverError
from rl_console.jobs import JobObject
from rl_console.view import is_true
from rl_contracts.spec.status import RLJobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The state of a job now, and each later one that differs, until the job has ended.

    Each loop over it begins anew. It raises TimeOverError at its deadline, NotFoundError where the
    job is deleted, and ClusterUnavailableError where the API server does not answer for two
    minutes, or not at all.
    """

    read: Callable[[], JobObject]
    timeout: float
    """Seconds until the deadline."""
    interval: float
    """Seconds between two looks."""

    def __iter__(self) -> Iterator[RLJobStatus]:
        """Wait in this thread."""
        looks = _Looks(self.read, timeout=self.timeout)
        while True:
            if (status := looks.changed()) is not None:
                yield status
            if looks.ended:
                return
            time.sleep(looks.pause(self.interval))

    async def __aiter__(self) -> AsyncIterator[RLJobStatus]:
        """Wait without holding up the event loop."""
        looks = _Looks(self.read, timeout=self.timeout)
        while True:
            if (status := await asyncio.to_thread(looks.changed)) is not None:
                yield status
            if looks.ended:
                return
            await asyncio.sleep(looks.pause(self.interval))


class _Looks:
    """What one loop has seen."""

    def __init__(self, read: Callable[[], JobObject], *, timeout: float) -> None:
        self._read, self._timeout = read, timeout
        self._answered = time.monotonic()
        self._ends = self._answered + timeout
        self._last: JobObject | None = None
        self.ended = False

    def changed(self) -> RLJobStatus | None:
        """The state, if it differs from the last one; raises TimeOverError after the deadline."""
        last = self._last
        try:
            self._last = self._read()
        except ClusterUnavailableError:
            if last is None or time.monotonic() - self._answered > SILENT_SECONDS:
                raise
        else:
            self._answered = time.monotonic()
        assert self._last is not None
        status = self._last.status
        self.ended = is_true(status, "Complete") or is_true(status, "Failed")
        if last is None or status != last.status:
            return status
        if not self.ended and time.monotonic() >= self._ends:
            raise TimeOverError(
                f"{self._last.name} has not ended after {self._timeout:.0f} s: {status.phase}",
                remedy="The job goes on; watch it again with a longer timeout",
            )
        return None

    def pause(self, interval: float) -> float:
        """Seconds until the next look."""
        return max(0.0, min(interval, self._ends - time.monotonic()))
