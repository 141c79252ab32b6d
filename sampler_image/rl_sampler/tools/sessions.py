"""One session for each episode with MCP servers that keep state: ``scope: Episode``.

An episode opens a session with its first call of the server's tools and closes it at its end. The
places for sessions are limited, and an episode takes one at all of these servers before its first
call, in the servers' order: so no two episodes wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from rl_sampler.tools.tool import ToolSource


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionServer:
    """A server whose sessions belong to episodes."""

    connect: Callable[[], ToolSource]
    """Makes a session; it is opened on its first use."""
    places: asyncio.Semaphore


class EpisodeSessions:
    """The sessions of one episode; used by its own tasks alone."""

    def __init__(self, servers: Mapping[str, SessionServer]) -> None:
        """Begin without any.

        Args:
            servers: by name.
        """
        self._servers = servers
        self._places = AsyncExitStack()
        self._entering = asyncio.Lock()
        self._entered = False
        self._open: dict[str, ToolSource] = {}

    async def source(self, server: str) -> ToolSource | None:
        """The episode's session with a server; None where its sessions are shared.

        Waits while as many episodes have sessions as may have them.
        """
        if server not in self._servers:
            return None
        async with self._entering:  # calls of one turn are made side by side
            if not self._entered:
                for each in self._servers.values():
                    await self._places.enter_async_context(each.places)
                self._entered = True
            if server not in self._open:
                self._open[server] = self._servers[server].connect()
        return self._open[server]

    async def close(self) -> None:
        """Close all sessions and give the places back."""
        try:
            await asyncio.gather(*(source.close() for source in self._open.values()))
        finally:
            await self._places.aclose()
