"""States of a job as they change, for plain and asynchronous loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from rl_console.actions.watching import SILENT_SECONDS
from rl_console.errors import ClusterUnavailableError, TimeOverError
from rl_console.jobs import JobObject
from rl_console.view import has_ended
from rl_contracts.spec.status import RLJobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The state of a job now, and each later one that differs, until the job has ended.

    Each loop starts with the present state and has its own deadline. It raises TimeOverError at
    that deadline, NotFoundError where the job is deleted, and ClusterUnavailableError where the API
    server does not answer for two minutes, or not at all.
    """

    read: Callable[[float], JobObject]
    """Reads the job within the seconds that are left."""
    timeout: float
    """Seconds until the deadline."""
    interval: float
    """Seconds between two reads."""

    def __iter__(self) -> Iterator[RLJobStatus]:
        """Wait in this thread."""
        reader = _Reader(self.read, timeout=self.timeout)
        while True:
            if (status := reader.changed()) is not None:
                yield status
            if reader.ended:
                return
            time.sleep(reader.pause(self.interval))

    async def __aiter__(self) -> AsyncIterator[RLJobStatus]:
        """Wait without holding up the event loop."""
        reader = _Reader(self.read, timeout=self.timeout)
        while True:
            if (status := await asyncio.to_thread(reader.changed)) is not None:
                yield status
            if reader.ended:
                return
            await asyncio.sleep(reader.pause(self.interval))


class _Reader:
    """Reads a job for one loop, and keeps what it read last."""

    def __init__(self, read: Callable[[float], JobObject], *, timeout: float) -> None:
        self._read, self._timeout = read, timeout
        self._answered = time.monotonic()
        self._ends = self._answered + timeout
        self._last: JobObject | None = None
        self.ended = False

    def changed(self) -> RLJobStatus | None:
        """The state, if it differs from the last one; raises TimeOverError after the deadline."""
        last, outage = self._last, ""
        try:
            self._last = self._read(self._ends - time.monotonic())
        except ClusterUnavailableError as error:
            outage = f" when it was last read. At the end {error}"
            if last is None or time.monotonic() - self._answered > SILENT_SECONDS:
                raise
        else:
            self._answered = time.monotonic()
        assert self._last is not None
        status = self._last.status
        self.ended = has_ended(status)
        if last is None or status != last.status:
            return status
        if not self.ended and time.monotonic() >= self._ends:
            raise TimeOverError(
                f"{self._last.name} has not ended after {self._timeout:.0f} s: "
                f"{status.phase}{outage}",
                remedy="The job goes on; watch it again with a longer timeout",
            )
        return None

    def pause(self, interval: float) -> float:
        """Seconds until the next read."""
        return max(0.0, min(interval, self._ends - time.monotonic()))
