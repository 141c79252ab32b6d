"""All tools of a run: several servers behind one list of names."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.documents.rollout import ToolCall
from rl_contracts.spec.agent.tools import McpServer
from rl_sampler.engine.tally import Tally
from rl_sampler.tools.browse import Browser
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.tool import (
    Tool,
    ToolDownError,
    ToolResult,
    ToolSource,
    ToolsRefusedError,
)

OWN = "Own"
"""Stands for the user's own functions among the servers, none of which can be called that."""
CUT = "\n[the rest was cut off]"


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool under the name that the policy knows."""

    tool: Tool
    source: ToolSource
    name_there: str


class Tools:
    """What one group was offered; the list does not change while its episodes go on."""

    def __init__(
        self,
        offers: Mapping[str, Offer],
        *,
        longest: int,
        tally: Tally,
        browser: Browser | None = None,
    ) -> None:
        """Wrap.

        Args:
            offers: by the name that the policy knows.
            longest: characters of a result that the policy is shown.
            tally: counts calls.
            browser: sums up long results; None: they are cut.
        """
        self._offers, self._longest, self._tally = offers, longest, tally
        self._browser = browser

    @property
    def listed(self) -> list[Tool]:
        """All of them."""
        return [offer.tool for offer in self._offers.values()]

    async def call(self, wanted: WantedCall) -> ToolCall:
        """Make one call; every outcome is data.

        Raises:
            UserCodeError: user code failed.
            NoCompletionError: the browse model answers, but says nothing of a long result.
        """
        began = time.monotonic()
        try:
            outcome, text = await self._outcome(wanted)
        except ToolDownError as error:
            outcome, text = "down", str(error)
        self._tally.tool_calls[outcome] += 1
        return ToolCall.model_validate(
            {
                "tool": wanted.tool,
                "arguments": wanted.arguments,
                "outcome": outcome,
                "result": text if len(text) <= self._longest else text[: self._longest] + CUT,
                "seconds": time.monotonic() - began,
            }
        )

    async def _outcome(self, wanted: WantedCall) -> tuple[str, str]:
        offer = self._offers.get(wanted.tool)
        if offer is None:
            return "refused", f"There is no tool {wanted.tool!r}. Tools: {', '.join(self._offers)}."
        try:
            arguments = json.loads(wanted.arguments or "{}")
        except ValueError as error:
            return "refused", f"The arguments are not JSON: {error}."
        if not isinstance(arguments, dict):
            return "refused", "The arguments are not a JSON object."
        result: ToolResult = await offer.source.call(offer.name_there, arguments)
        if result.failed or self._browser is None:
            return ("failed" if result.failed else "answered"), result.text
        return "answered", await self._browser.read(wanted, result.text)


class Toolbox:
    """The run's servers."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        *,
        secrets: Path,
        longest: int,
        tally: Tally,
        own: ToolSource | None = None,
        browser: Browser | None = None,
    ) -> None:
        """Prepare; nothing is connected yet.

        Args:
            servers: of the manifest.
            secrets: where their tokens are mounted.
            longest: characters of a result that the policy is shown.
            tally: counts calls.
            own: the user's own functions; None where there are none.
            browser: sums up long results; None: they are cut.
        """
        self._browser = browser
        self._tally, self._longest = tally, longest
        self._sources = _connections(servers, secrets) if servers else {}
        if own is not None:
            self._sources[OWN] = own

    async def open(self) -> Tools:
        """List all servers' tools anew.

        Raises:
            ToolDownError: a server cannot be reached.
            ToolsRefusedError: there are no tools, or names cannot be told apart.
        """
        found = await asyncio.gather(*(source.tools() for source in self._sources.values()))
        by_server = dict(zip(self._sources, found, strict=True))
        offers = {
            name: Offer(
                Tool(name=name, description=tool.description, parameters=tool.parameters),
                self._sources[server],
                tool.name,
            )
            for name, server, tool in named(by_server)
        }
        return Tools(offers, longest=self._longest, tally=self._tally, browser=self._browser)

    async def close(self) -> None:
        """Leave all servers."""
        await asyncio.gather(*(source.close() for source in self._sources.values()))


def named(by_server: Mapping[str, Sequence[Tool]]) -> list[tuple[str, str, Tool]]:
    """Names for the policy: a tool's own, with its server's before it where several share one."""
    own = Counter(tool.name for tools in by_server.values() for tool in tools)
    named = [
        (tool.name if own[tool.name] == 1 else f"{server}_{tool.name}", server, tool)
        for server, tools in by_server.items()
        for tool in tools
    ]
    if by_server and not named:
        raise ToolsRefusedError(f"MCP servers {', '.join(by_server)} offer no tools")
    for name, count in Counter(name for name, _, _ in named).items():
        if count > 1:
            raise ToolsRefusedError(f"several MCP servers offer a tool {name!r}: rename a server")
    return named


def _connections(servers: Sequence[McpServer], secrets: Path) -> dict[str, ToolSource]:
    from rl_sampler.tools.connection import Connection  # takes a second; not all agents have tools

    return {server.name: Connection(server, secrets=secrets) for server in servers}
