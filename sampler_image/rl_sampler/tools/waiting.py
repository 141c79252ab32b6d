"""Waits for MCP servers that are down: nothing is claimed meanwhile, and no attempt is lost.

A group lists its tools before anything is sampled for it. If its task were handed back at once, it
would be claimed again at once, and a restart of a server would use up all of its attempts.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from rl_contracts.documents.sampler import TOOL_SERVER
from rl_sampler.completions.outages import Outages
from rl_sampler.tools.tool import ToolDownError, ToolsRefusedError
from rl_sampler.tools.toolbox import Tools

FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0


class ToolServers(Protocol):
    """Servers that must answer before a group begins."""

    async def open(self) -> Tools:
        """List their tools; raises ToolDownError and ToolsRefusedError."""

    async def close(self) -> None:
        """Disconnect."""


class WaitingToolbox:
    """A toolbox whose ``open`` waits until all of its servers answer."""

    def __init__(self, toolbox: ToolServers, *, outages: Outages, kind: str = TOOL_SERVER) -> None:
        """Wrap a toolbox.

        Args:
            toolbox: the toolbox.
            outages: records which server is down.
            kind: of its servers, for the name of an outage.
        """
        self._toolbox, self._outages, self._kind = toolbox, outages, kind
        self._all_answer = asyncio.Event()
        self._all_answer.set()
        self._polling: asyncio.Task[None] | None = None

    async def open(self) -> Tools:
        """List all tools, through any outage; the caller's claim bounds the wait.

        Raises:
            ToolsRefusedError: as ``Toolbox.open``.
        """
        while True:
            await self._all_answer.wait()
            try:
                return await self._toolbox.open()
            except ToolDownError as error:
                if self._all_answer.is_set():  # else another group noticed the outage already
                    self._all_answer.clear()
                    self._polling = asyncio.create_task(self._poll(error), name="poll tools")

    async def close(self) -> None:
        """Close all sources and stop polling."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait({self._polling})
        await self._toolbox.close()

    async def _poll(self, error: ToolDownError) -> None:
        """Poll the servers with a growing backoff until all of them answer."""
        backoff = FIRST_BACKOFF_SECONDS
        outage = self._report(error, before="")
        try:
            while True:
                await asyncio.sleep(backoff)
                try:
                    await self._toolbox.open()
                except ToolDownError as still_down:
                    outage = self._report(still_down, before=outage)
                    backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)
                except ToolsRefusedError:
                    return  # all servers answer; the next call of `open` raises the refusal
                else:
                    return
        finally:
            self._outages.clear(outage)
            self._all_answer.set()

    def _report(self, error: ToolDownError, *, before: str) -> str:
        """Record the outage of a server; returns its name.

        The message of an outage stays the first one, since a condition of the job shows it.
        """
        name = f"{error.kind or self._kind} {error.server}".strip()
        if name != before:
            self._outages.clear(before)
            self._outages.note(name, str(error))
        return name
