"""OpenEnv servers as the manifest names them: sessions, tools, and whether they answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from rl_contracts.spec.agent.environment import Environment
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.problems import Problems
from rl_sampler.environments.actions import tool_of_schema, tools_in
from rl_sampler.environments.copies import Servers
from rl_sampler.environments.protocol import (
    ActionRefusedError,
    EnvironmentBusyError,
    EnvironmentDownError,
    EnvironmentUnreachableError,
    Seen,
)
from rl_sampler.environments.session import Session, reason
from rl_sampler.tools.tool import Tool, ToolResult
from rl_sampler.tools.toolbox import Offer, Tools

MOST_SESSIONS = 256
"""Of this process at the same time; further episodes wait."""
BUSY_SECONDS = 900.0
"""Longest wait for a server without room for another session."""
FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 10.0
NO_ACCESS = (401, 403)
SERVER_ERROR = 500
OK = 200
MAX_SCHEMA_BYTES = 1 << 20
LISTING = "tools of the environment"
"""Topic of the problem that there is no room to list them."""
Place = Callable[[Session, Callable[[], Awaitable[Seen]]], Awaitable[Seen]]
"""Opens a session where there is room, and asks there."""


class EnvironmentServer:
    """An OpenEnv server or copies of one, shared by all episodes of this process."""

    def __init__(
        self,
        section: Environment,
        *,
        servers: Servers,
        http: aiohttp.ClientSession,
        headers: Path,
        longest: int,
        counters: Counters,
        problems: Problems,
    ) -> None:
        """Make it; nothing is connected yet.

        Args:
            section: of the manifest.
            servers: where it answers.
            http: for requests to servers that the manifest names.
            headers: folder with a file for each header.
            longest: most characters of an observation that the policy is shown.
            counters: of the tools.
            problems: of this sampler.
        """
        self.section = section
        self.slots = asyncio.Semaphore(MOST_SESSIONS)
        self.has_tools = False
        """The environment lists tools of its own, which its actions call by name."""
        self._servers, self._http, self._headers_folder = servers, http, headers
        self._longest, self._counters, self._problems = longest, counters, problems
        self._tools: list[Tool] | None = None
        self._listing: asyncio.Task[list[Tool]] | None = None
        """Lists the tools for all groups that wait for them."""
        self._outages = self._listed_after = 0
        """Failures of /health: all, and those before the tools were listed."""

    def session(self) -> Session:
        """A session that is not open yet."""
        return Session(
            self._http, "", headers=self._headers(), seconds=self.section.timeout_seconds
        )

    async def begin(self, session: Session, arguments: Mapping[str, Any]) -> Seen:
        """Open a session and reset its environment; waits while the server has no room.

        Raises:
            EnvironmentDownError: it cannot be reached, refuses the arguments, or has had no room
                for ``BUSY_SECONDS``.
        """
        if session.slot is None:
            await self.slots.acquire()
            session.slot = self.slots
        return await self._when_room(session, lambda: _reset(session, arguments))

    async def _when_room(
        self, session: Session, ask: Callable[[], Awaitable[Seen]], *, topic: str = ""
    ) -> Seen:
        """Ask as ``_placed``, and wait while no server has room.

        Args:
            session: to open.
            ask: asks in it.
            topic: of the problem that is noted while it waits; empty: none.

        Raises:
            EnvironmentDownError: as ``_placed``, or none has had room for ``BUSY_SECONDS``.
        """
        until, backoff = time.monotonic() + BUSY_SECONDS, FIRST_BACKOFF_SECONDS
        while True:
            try:
                return await self._placed(session, ask)
            except EnvironmentBusyError as error:
                if time.monotonic() + backoff > until:
                    what = f"has had no room for a session for {BUSY_SECONDS:g} s"
                    raise _down(session.url, f"{what} ({error}): {self._remedy}") from error
                if topic:
                    full = _down(session.url, f"has no room for a session ({error})")
                    self._problems.note(topic, f"{full}: {self._remedy}")
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)

    @property
    def _remedy(self) -> str:
        """For want of room."""
        if self.section.image is None:
            return "raise its max_concurrent_envs, or have fewer samplers"
        return "raise agent.environment.copies"

    async def begin_again(self, session: Session, arguments: Mapping[str, Any]) -> Seen:
        """Reset the environment of an open session; where that has no room, as ``begin``.

        Raises:
            EnvironmentDownError: as ``begin``.
        """
        with contextlib.suppress(EnvironmentBusyError):  # which has closed the session
            return await _reset(session, arguments)
        return await self.begin(session, arguments)

    async def _placed(self, session: Session, ask: Callable[[], Awaitable[Seen]]) -> Seen:
        """Open a session at the first server that has room, and ask there.

        Raises:
            EnvironmentBusyError: one has no room, and none of the others has or can be reached.
            EnvironmentDownError: none can be reached, or the one that has room failed.
        """
        busy: EnvironmentBusyError | None = None
        unreachable: EnvironmentUnreachableError | None = None
        for url in await self._servers():
            session.url = url
            try:
                await session.open()
                return await ask()
            except EnvironmentBusyError as error:
                busy = error
            except EnvironmentUnreachableError as error:
                unreachable = error
        assert busy is not None or unreachable is not None, "there is a server"
        raise busy or unreachable  # type: ignore[misc]

    async def open(self) -> Tools:
        """Check that the server answers, and list its tools where actions are tool calls.

        It waits for room to list them; after an outage it goes on with the known tools until then.

        Raises:
            EnvironmentDownError: it does not answer, or has had no room for ``BUSY_SECONDS``.
        """
        await self._check()
        listed: list[Tool] = []
        if self.section.action == "Tool":
            listed = await self._listed()
        offers = {tool.name: Offer(tool, self, tool.name) for tool in listed}
        return Tools(offers, longest=self._longest, counters=self._counters)

    async def tools(self) -> list[Tool]:
        """As listed last."""
        return self._tools or []

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Never called: each call is a step of an episode's own session."""
        raise AssertionError(f"tool {tool} was called outside of an episode")

    async def close(self) -> None:
        """End the listing of the tools; episodes close their own sessions."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait({self._listing})

    async def _check(self) -> None:
        try:
            url, status, _ = await self._get("/health")
            if status in NO_ACCESS:
                raise _down(url, f"answers {status}: check headersSecret")
            if status >= SERVER_ERROR:
                raise _down(url, f"answers {status} to /health")
        except EnvironmentDownError:
            self._outages += 1
            raise

    async def _listed(self) -> list[Tool]:
        if self._tools is not None and self._listed_after == self._outages:
            return self._tools
        if self._listing is None:
            self._listing = asyncio.create_task(self._list_again(), name="list tools")
        return await asyncio.shield(self._listing)  # a group that ends does not end it for others

    async def _list_again(self) -> list[Tool]:
        try:
            if self._tools is None:
                self._tools = await self._list(partial(self._when_room, topic=LISTING))
            else:  # another release may have come back
                with contextlib.suppress(EnvironmentBusyError):
                    self._tools = await self._list(self._placed)
            return self._tools
        finally:
            self._listing = None
            self._problems.clear(LISTING)

    async def _list(self, place: Place) -> list[Tool]:
        outages = self._outages
        tools = await self._own_tools(place)
        listed = tools or [await self._tool_of_actions()]
        self.has_tools, self._listed_after = bool(tools), outages
        return listed

    async def _own_tools(self, place: Place) -> list[Tool]:
        """The tools that the environment lists; empty where it has none."""
        async with self.session() as session:
            try:
                listing = {"type": "list_tools"}
                observation = (await place(session, lambda: session.step(listing))).observation
            except ActionRefusedError:
                return []
        tools = tools_in(observation)
        if not tools:
            raise _down(session.url, "answers list_tools, and lists no tool")
        return tools

    async def _tool_of_actions(self) -> Tool:
        url, status, body = await self._get("/schema")
        schema = body.get("action") if isinstance(body, Mapping) else None
        if status != OK or not isinstance(schema, Mapping):
            raise _down(url, f"answers {status} to /schema, without the schema of actions")
        return tool_of_schema(schema)

    async def _get(self, path: str) -> tuple[str, int, Any]:
        """Server, status and JSON of the first server's page that can be reached.

        The JSON is None for what is none, or too long.
        """
        unreachable: EnvironmentUnreachableError | None = None
        for url in await self._servers():
            try:
                return url, *await self._page(url, path)
            except EnvironmentUnreachableError as error:
                unreachable = error
        assert unreachable is not None, "there is a server"
        raise unreachable

    async def _page(self, url: str, path: str) -> tuple[int, Any]:
        limit = aiohttp.ClientTimeout(total=self.section.timeout_seconds)
        page, headers = f"{url.rstrip('/')}{path}", self._headers()
        try:
            async with self._http.get(page, headers=headers, timeout=limit) as response:
                await response.content.readexactly(MAX_SCHEMA_BYTES)
                return response.status, None
        except asyncio.IncompleteReadError as ended:
            return response.status, _json(ended.partial)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise EnvironmentUnreachableError(
                f"the environment at {url} cannot be reached: {reason(error)}"
            ) from error

    def _headers(self) -> dict[str, str]:
        """Read for each connection: the kubelet updates the files when the Secret changes."""
        if self.section.headers_secret is None:
            return {}
        files = sorted(self._headers_folder.iterdir()) if self._headers_folder.is_dir() else []
        return {file.name: self._header(file) for file in files if not file.name.startswith(".")}

    def _header(self, file: Path) -> str:
        with contextlib.suppress(UnicodeDecodeError):
            value = file.read_text().strip()
            if value.isprintable():
                return value
        raise _down(
            str(self.section.url),
            f"cannot be asked: key {file.name} of headersSecret is no header, which is one line of "
            "text in UTF-8",
        )


async def _reset(session: Session, arguments: Mapping[str, Any]) -> Seen:
    """As ``Session.reset``, but arguments that are refused mean that the environment is down."""
    try:
        return await session.reset(arguments)
    except ActionRefusedError as error:
        raise _down(session.url, f"refuses the arguments of reset: {error}") from error


def _down(url: str, what: str) -> EnvironmentDownError:
    return EnvironmentDownError(f"the environment at {url} {what}")


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
