"""The engine's slots: the bound on sequences that are sent to it concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Slots:
    """A semaphore whose size is given with each use, since the engine reports it once it is up."""

    def __init__(self) -> None:
        self._used = 0
        self._waiting = 0
        self._freed = asyncio.Condition()
        self.when_freed: Callable[[], object] = lambda: None
        """Called when slots are freed."""

    @property
    def demand(self) -> int:
        """Sequences that the engine decodes or that wait for it."""
        return self._used + self._waiting

    @asynccontextmanager
    async def take(self, number: int, *, of: int) -> AsyncIterator[None]:
        """Hold ``number`` of ``of`` slots; a group larger than that waits until all are free."""
        wanted = min(number, of)
        self._waiting += wanted
        try:
            async with self._freed:
                await self._freed.wait_for(lambda: self._used + wanted <= of)
                self._used += wanted
        finally:
            self._waiting -= wanted
        try:
            yield
        finally:
            async with self._freed:
                self._used -= wanted
                self._freed.notify_all()
            self.when_freed()
