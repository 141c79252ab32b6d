"""All tools of a run: several sources with a common list of unique names."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rl_contracts import tracing
from rl_contracts.documents.rollout import ToolCall
from rl_contracts.documents.task import ImagePart
from rl_contracts.spec.agent.tools import McpServer
from rl_sampler.code.client import CodeContainer
from rl_sampler.engine.counters import Counters
from rl_sampler.tools.answer import ANSWER_ARGUMENT, AnswerTool
from rl_sampler.tools.browse import Browser, with_argument
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.images import LEFT_OUT, ToolImages
from rl_sampler.tools.sessions import EpisodeSessions, SessionServer
from rl_sampler.tools.tool import (
    Tool,
    ToolDownError,
    ToolResult,
    ToolSource,
    ToolsRefusedError,
)

NAME_CHARACTERS = 128
"""Of a tool's name in traces: the policy may have made it up."""
CUT = "\n[the rest was cut off]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a call."""

    kind: str
    """As in ``ToolCall.outcome``."""
    text: str
    images: list[ImagePart] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool under the name that the policy uses."""

    tool: Tool
    source: ToolSource
    source_name: str
    """The tool's name at its source."""
    server: str = ""
    """Name of the source in the manifest."""
    added: str = ""
    """An argument that the source does not know: it is for the browse model."""


class Tools:
    """The tools of a group; the list does not change while its episodes run."""

    def __init__(
        self,
        offers: Mapping[str, Offer],
        *,
        longest: int,
        counters: Counters,
        final: Mapping[str, str | None] | None = None,
        browser: Browser | None = None,
        images: ToolImages | None = None,
        servers: Mapping[str, SessionServer] | None = None,
    ) -> None:
        """Offer tools.

        Args:
            offers: by the name that the policy uses.
            final: the tools whose call ends the episode, with the argument that is the answer;
                None where scorers read the response's text.
            longest: most characters of a result; the rest is cut off.
            counters: count calls by outcome.
            browser: summarises long results; None to cut them off.
            images: stores images in results; None where the policy is shown none.
            servers: those with which each episode has a session of its own, by name.
        """
        self._servers = servers or {}
        self._sessions = EpisodeSessions(self._servers)
        self._offers, self._longest, self._counters = offers, longest, counters
        self._browser, self._images = browser, images
        self.final = dict(final or {})

    @property
    def listed(self) -> list[Tool]:
        """The tools under the names that the policy uses."""
        return [offer.tool for offer in self._offers.values()]

    def of_episode(self) -> Tools:
        """The same tools for one episode, which must close them."""
        if not self._servers:
            return self
        return Tools(
            self._offers,
            longest=self._longest,
            counters=self._counters,
            browser=self._browser,
            images=self._images,
            final=self.final,
            servers=self._servers,
        )

    async def close(self) -> None:
        """Close the sessions of this episode; a second time does nothing."""
        await self._sessions.close()

    async def call(self, wanted: WantedCall) -> ToolCall:
        """Make a call; every outcome is recorded, also ``down`` and ``refused``.

        Raises:
            UserCodeError: user code failed.
            NoCompletionError: the browse model gave no usable summary of a long result.
        """
        began, name = time.monotonic(), wanted.tool[:NAME_CHARACTERS]
        with tracing.span("execute_tool", **{"gen_ai.tool.name": name}) as facts:
            try:
                outcome = await self._outcome(wanted)
            except ToolDownError as error:
                outcome = Outcome(kind="down", text=self._cut(str(error)))
            facts["rl.outcome"] = outcome.kind
        self._counters.tool_calls[outcome.kind] += 1
        return ToolCall.model_validate(
            {
                "tool": wanted.tool,
                "arguments": wanted.arguments,
                "outcome": outcome.kind,
                "result": outcome.text,
                "images": outcome.images,
                "seconds": time.monotonic() - began,
            }
        )

    async def _outcome(self, wanted: WantedCall) -> Outcome:
        offer = self._offers.get(wanted.tool)
        if offer is None:
            return self._refused(
                f"There is no tool {wanted.tool!r}. Tools: {', '.join(self._offers)}."
            )
        arguments = _arguments(wanted)
        if isinstance(arguments, str):
            return self._refused(arguments)
        source = await self._sessions.source(offer.server) or offer.source
        known = {name: value for name, value in arguments.items() if name != offer.added}
        result: ToolResult = await source.call(offer.source_name, known)
        text = result.text
        if self._browser is not None and not result.failed:
            text = await self._browser.read(wanted, arguments, text)
        images, notes = await self._taken(result.images)
        lines = [self._cut(text)] if text or not result.images else []
        return Outcome(
            kind="failed" if result.failed else "answered",
            text="\n".join([*lines, *notes]),
            images=images,
        )

    async def _taken(self, files: Sequence[str]) -> tuple[list[ImagePart], list[str]]:
        """The images of a result, and what stands in the place of those that are left out."""
        if self._images is None:
            return [], [LEFT_OUT] * len(files)
        return await self._images.take(files)

    def _refused(self, text: str) -> Outcome:
        return Outcome(kind="refused", text=self._cut(text))

    def _cut(self, text: str) -> str:
        return text if len(text) <= self._longest else text[: self._longest] + CUT


class Toolbox:
    """The sources of a run's tools."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        *,
        secrets: Path,
        longest: int,
        counters: Counters,
        code: CodeContainer | None = None,
        own: Mapping[str, ToolSource] | None = None,
        final: Mapping[str, str | None] | None = None,
        browser: Browser | None = None,
        images: ToolImages | None = None,
    ) -> None:
        """Make a toolbox; no server is connected yet.

        Args:
            servers: the manifest's MCP servers.
            secrets: folder with the servers' tokens.
            longest: most characters of a result; the rest is cut off.
            counters: count calls by outcome.
            code: where servers with a command run; None where there are none.
            own: the user's functions and built-in tools, by names that no MCP server can have:
                with a capital letter.
            final: the manifest's tools whose call ends the episode, as for ``Tools``.
            browser: summarises long results; None to cut them off.
            images: stores images in results; None where the policy is shown none.
        """
        self._browser, self._images = browser, images
        self._counters, self._longest = counters, longest
        self._sources: dict[str, ToolSource] = {}
        self._servers: dict[str, SessionServer] = {}
        if servers:
            self._sources, self._servers = _connections(servers, secrets, code)
        self._sources |= own or {}
        self._final = dict(final or {})

    async def open(self) -> Tools:
        """List the tools of all sources.

        Raises:
            ToolDownError: a server cannot be reached.
            ToolsRefusedError: no tools are offered, their names are ambiguous, or
                ``agent.finalTools`` names one that is not offered.
        """
        listed = await asyncio.gather(*(source.tools() for source in self._sources.values()))
        by_server = dict(zip(self._sources, listed, strict=True))
        offers = {
            name: self._offer(replace(tool, name=name), server, tool.name)
            for name, server, tool in unique_names(by_server)
        }
        if self._browser is not None:
            self._browser.check(offers)
        return Tools(
            offers,
            longest=self._longest,
            counters=self._counters,
            browser=self._browser,
            images=self._images,
            final=self._final_of(offers),
            servers=self._servers,
        )

    def _offer(self, tool: Tool, server: str, source_name: str) -> Offer:
        added = self._browser.added_argument(tool) if self._browser is not None else ""
        shown = with_argument(tool, added) if added else tool
        return Offer(shown, self._sources[server], source_name, server, added)

    def _final_of(self, offers: Mapping[str, Offer]) -> dict[str, str | None]:
        """The tools that end an episode, with the argument that is the answer."""
        absent = next((name for name in self._final if name not in offers), None)
        if absent is not None:
            raise ToolsRefusedError(
                f"spec.agent.finalTools names {absent}, and no tool has this name: use one of "
                f"{', '.join(offers)}"
            )
        handing_in = {
            name: ANSWER_ARGUMENT
            for name, offer in offers.items()
            if isinstance(offer.source, AnswerTool)
        }
        return self._final | handing_in

    async def close(self) -> None:
        """Close all sources."""
        await asyncio.gather(*(source.close() for source in self._sources.values()))
        if self._images is not None:
            self._images.close()


def unique_names(by_server: Mapping[str, Sequence[Tool]]) -> list[tuple[str, str, Tool]]:
    """Name, server and tool of each tool; names are unique.

    A name is the tool's own, or ``<server>_<tool>`` where several servers have the same name.

    Raises:
        ToolsRefusedError: the servers offer no tools, or names are ambiguous all the same.
    """
    pairs = [(server, tool) for server, tools in by_server.items() for tool in tools]
    if by_server and not pairs:
        raise ToolsRefusedError(f"MCP servers {', '.join(by_server)} offer no tools")
    names = _prefixed_where_shared(pairs)
    ambiguous = [name for name, count in Counter(names).items() if count > 1]
    if ambiguous:
        raise ToolsRefusedError(
            f"several MCP servers offer a tool {ambiguous[0]!r}: rename a server"
        )
    return [(name, server, tool) for name, (server, tool) in zip(names, pairs, strict=True)]


def _prefixed_where_shared(pairs: Sequence[tuple[str, Tool]]) -> list[str]:
    """The tools' names, each with its server's name before it where several servers have it."""
    own = Counter(tool.name for _, tool in pairs)
    return [tool.name if own[tool.name] == 1 else f"{server}_{tool.name}" for server, tool in pairs]


def _connections(
    servers: Sequence[McpServer], secrets: Path, code: CodeContainer | None
) -> tuple[dict[str, ToolSource], dict[str, SessionServer]]:
    """Connections that all episodes share, which list tools, and servers with sessions for each."""
    from rl_sampler.tools.connection import Connection  # takes a second; not all agents have tools

    def of_episodes(server: McpServer) -> SessionServer:
        connect = partial(Connection, server, secrets=secrets, code=code, keeps_state=True)
        return SessionServer(connect=connect, places=asyncio.Semaphore(server.places))

    return (
        {server.name: Connection(server, secrets=secrets, code=code) for server in servers},
        {server.name: of_episodes(server) for server in servers if server.scope == "Episode"},
    )


def _arguments(wanted: WantedCall) -> dict[str, Any] | str:
    """The arguments of a call, or what is wrong with them."""
    try:
        arguments = json.loads(wanted.arguments or "{}")
        # What cannot be sent would close the connection to a server that other episodes use, too.
        json.dumps(arguments, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "The arguments hold half of a surrogate pair, which is no text."
    except RecursionError:
        return "The arguments are nested too deep."
    except ValueError as error:
        return f"The arguments are not JSON: {error}."
    return arguments if isinstance(arguments, dict) else "The arguments are not a JSON object."
