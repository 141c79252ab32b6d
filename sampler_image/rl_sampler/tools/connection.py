"""Connects to an MCP server on the first use, and again after the server failed.

The SDK's client must be entered and left by the same task, so each connection has its own task.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import CallToolResult, ImageContent, TextContent

from rl_contracts.spec.agent.tools import McpServer
from rl_sampler.code.client import CodeContainer
from rl_sampler.code.stream import program_of
from rl_sampler.tools.tool import Tool, ToolDownError, ToolResult

logger = logging.getLogger(__name__)

PROBE_SECONDS = 10.0
CLOSE_SECONDS = 1.0
"""For a server to end the session of an episode; then its connection is dropped."""
MAX_PAGES = 100
TOKEN_FILE = "token"


class Connection:
    """A session with an MCP server: shared by all episodes of this process, or of one of them."""

    def __init__(
        self,
        server: McpServer,
        *,
        secrets: Path,
        code: CodeContainer | None,
        keeps_state: bool = False,
    ) -> None:
        """Make a connection; it is opened on the first use.

        Args:
            server: the section of the manifest.
            secrets: folder in which ``<server>/token`` is mounted.
            code: where a server with a command runs.
            keeps_state: the server keeps state for this session. Then it is not opened again once
                it has ended: its tools are down, and what the episode did cannot go on.
        """
        self._keeps_state, self._was_open = keeps_state, False
        # Since 2026-07-28 the protocol has no sessions: only the older handshake opens one.
        self._mode = "legacy" if keeps_state else "auto"
        self._server, self._secrets, self._code = server, secrets, code
        self._lock = asyncio.Lock()
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()

    async def tools(self) -> list[Tool]:
        """List the server's tools, over a new connection if the current connection is broken.

        Raises:
            ToolDownError: the server cannot be reached, or does not answer.
        """
        current, seconds = self._client, self._server.timeout_seconds
        if current is not None:
            try:
                return await self._list(current, seconds=seconds)
            except ToolDownError:
                await self._drop(current)
        client = await self._connect()
        try:
            return await self._list(client, seconds=seconds)
        except ToolDownError:
            await self._drop(client)
            raise

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool.

        An error or a time-out is a failed result of the tool where the server still answers.

        Raises:
            ToolDownError: the server no longer answers.
        """
        client = await self._connect()
        seconds = self._server.timeout_seconds
        try:
            async with asyncio.timeout(seconds + PROBE_SECONDS):
                result = await client.call_tool(tool, dict(arguments), seconds)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the tool-call boundary: becomes a result
            return await self._failed_call(client, tool, error)
        images = tuple(each.data for each in result.content if isinstance(each, ImageContent))
        return ToolResult(text=_text(result), images=images, failed=result.is_error)

    async def close(self) -> None:
        """Disconnect from the server."""
        async with self._lock:
            await self._disconnect()

    async def _failed_call(self, client: Client, tool: str, error: Exception) -> ToolResult:
        message = _error_text(error)
        try:
            await self._list(client, seconds=PROBE_SECONDS)
        except ToolDownError as down:
            await self._drop(client)
            raise ToolDownError(
                f"{down} (after {tool} failed: {message})", server=self._server.name
            ) from error
        logger.info("tool %s of %s failed: %s", tool, self._server.name, message)
        return ToolResult(text=message, failed=True)

    async def _list(self, client: Client, *, seconds: float) -> list[Tool]:
        listed: list[Tool] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(seconds):
                for _ in range(MAX_PAGES):
                    page = await client.list_tools(cursor=cursor)
                    listed += [
                        Tool(
                            name=tool.name,
                            description=tool.description or "",
                            parameters=tool.input_schema,
                        )
                        for tool in page.tools
                    ]
                    cursor = page.next_cursor
                    if not cursor:
                        break
        except Exception as error:  # the tool-call boundary: any failure means that it is down
            raise self._down(error) from error
        return listed

    async def _connect(self) -> Client:
        async with self._lock:
            if self._client is not None and self._owner is not None and not self._owner.done():
                return self._client
            if self._keeps_state and self._was_open:
                raise self._down(RuntimeError("the session of this episode has ended"))
            await self._disconnect()
            ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
            self._leave = asyncio.Event()
            self._owner = asyncio.create_task(
                self._hold_client(ready, self._leave), name=f"mcp {self._server.name}"
            )
            try:
                async with asyncio.timeout(self._server.timeout_seconds):
                    self._client = await ready
                self._was_open = True
            except (TimeoutError, ToolDownError, asyncio.CancelledError) as error:
                await self._disconnect()
                if isinstance(error, TimeoutError):
                    raise self._down(error) from error
                raise
            return self._client

    async def _hold_client(self, ready: asyncio.Future[Client], leave: asyncio.Event) -> None:
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._new_client(stack))
                if not ready.cancelled():
                    ready.set_result(client)
                await leave.wait()
        except Exception as error:  # noqa: BLE001 - the tool-call boundary: raised by `_connect`
            if not ready.done():
                ready.set_exception(self._down(error))
            else:
                logger.info("MCP server %s disconnected: %s", self._server.name, _error_text(error))

    async def _new_client(self, stack: AsyncExitStack) -> Client:
        server = self._server
        if server.url is None:
            assert self._code is not None
            return Client(program_of(self._code, server.name), cache=None, mode=self._mode)
        http = await stack.enter_async_context(create_mcp_http_client(headers=self._headers()))
        transport = streamable_http_client(server.url, http_client=http)
        return Client(transport, cache=None, mode=self._mode)

    def _headers(self) -> dict[str, str]:
        if self._server.token_secret_ref is None:
            return {}
        # Read for each connection: the kubelet updates the file when the Secret changes.
        token = (self._secrets / self._server.name / TOKEN_FILE).read_text().strip()
        return {"Authorization": f"Bearer {token}"}

    async def _drop(self, client: Client) -> None:
        """Close a broken connection, unless another task closed it already."""
        async with self._lock:
            if self._client is client:
                await self._disconnect()

    async def _disconnect(self) -> None:
        owner, self._owner, self._client = self._owner, None, None
        if owner is None:
            return
        self._leave.set()
        # A stopping sampler closes the sessions of its episodes before it hands their tasks back.
        seconds = CLOSE_SECONDS if self._keeps_state else PROBE_SECONDS
        done, _ = await asyncio.wait({owner}, timeout=seconds)
        if not done:
            owner.cancel()
            await asyncio.wait({owner}, timeout=seconds)

    def _down(self, error: BaseException) -> ToolDownError:
        where = self._server.url or " ".join(self._server.command)
        return ToolDownError(
            f"MCP server {self._server.name} ({where}) does not answer: {_error_text(error)}",
            server=self._server.name,
        )


def _error_text(error: BaseException) -> str:
    """The message of the innermost error, which the SDK's task groups wrap."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "it timed out"
    return (error.message if isinstance(error, MCPError) else str(error)) or type(error).__name__


def _text(result: CallToolResult) -> str:
    parts = [
        content.text if isinstance(content, TextContent) else f"[{content.type} left out]"
        for content in result.content
        if not isinstance(content, ImageContent)
    ]
    if not result.content and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)
