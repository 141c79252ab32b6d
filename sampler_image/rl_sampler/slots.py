"""The engine's slots: how many sequences are sent to it at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """A counted bound whose size the engine tells when it is up."""

    def __init__(self) -> None:
        self._used = 0
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def take(self, number: int, *, of: int) -> AsyncIterator[None]:
        """Hold ``number`` of ``of`` slots; a group larger than the engine waits to be alone."""
        wanted = min(number, of)
        async with self._freed:
            await self._freed.wait_for(lambda: self._used + wanted <= of)
            self._used += wanted
        try:
            yield
        finally:
            async with self._freed:
                self._used -= wanted
                self._freed.notify_all()
