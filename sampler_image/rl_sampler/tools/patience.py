"""MCP servers that are away are waited for: nothing is claimed meanwhile, and no attempt is lost.

A group asks for its tools before anything is sampled for it. Handed back at once, its task would be
claimed again at once, and a server that restarts would cost it all of its attempts.
"""

from __future__ import annotations

import asyncio

from rl_contracts.documents.sampler import TOOL_SERVER
from rl_sampler.completions.outages import Outages
from rl_sampler.tools.tool import ToolDownError, ToolsRefusedError
from rl_sampler.tools.toolbox import Toolbox, Tools

FIRST_REST_SECONDS = 0.5
LONGEST_REST_SECONDS = 30.0


class PatientToolbox:
    """A toolbox that opens when all of its servers answer."""

    def __init__(self, toolbox: Toolbox, *, outages: Outages) -> None:
        """Wrap ``toolbox``; ``outages`` is told which server is waited for."""
        self._toolbox, self._outages = toolbox, outages
        self._answer = asyncio.Event()
        self._answer.set()
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> Tools:
        """List all servers' tools anew, through any outage; the caller's claim bounds the wait.

        Raises:
            ToolsRefusedError: as Toolbox.open.
        """
        while True:
            await self._answer.wait()
            try:
                return await self._toolbox.open()
            except ToolDownError as error:
                if self._answer.is_set():  # else others found it out at the same time
                    self._answer.clear()
                    self._looking = asyncio.create_task(self._look(error), name="look for tools")

    async def close(self) -> None:
        """Leave all servers, and look for none any more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        await self._toolbox.close()

    async def _look(self, error: ToolDownError) -> None:
        """Ask after each rest, until all of them answer."""
        rest = FIRST_REST_SECONDS
        told = self._tell(error, before="")
        try:
            while True:
                await asyncio.sleep(rest)
                try:
                    await self._toolbox.open()
                except ToolDownError as again:
                    told = self._tell(again, before=told)
                    rest = min(2 * rest, LONGEST_REST_SECONDS)
                except ToolsRefusedError:
                    return  # they answer; whoever opens is told
                else:
                    return
        finally:
            self._outages.clear(told)
            self._answer.set()

    def _tell(self, error: ToolDownError, *, before: str) -> str:
        """Note who is away, under a name that is returned; its words stay the first ones."""
        name = f"{TOOL_SERVER} {error.server}"
        if name != before:
            self._outages.clear(before)
            self._outages.note(name, str(error))
        return name
