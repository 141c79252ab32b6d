"""A connection to one MCP server: made when it is needed, and again after the server failed.

The SDK's client must be entered and left by one task, so each connection has a task of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import CallToolResult, TextContent

from rl_contracts.spec.agent.tools import McpServer
from rl_sampler.tools.tool import Tool, ToolDownError, ToolResult

logger = logging.getLogger(__name__)

PROBE_SECONDS = 10.0
MOST_PAGES = 100
TOKEN_FILE = "token"


class Connection:
    """One MCP server, shared by all episodes of this process."""

    def __init__(self, server: McpServer, *, secrets: Path) -> None:
        """Prepare; nothing is connected yet.

        Args:
            server: as the manifest names it.
            secrets: folder in which ``<server>/token`` is mounted.
        """
        self._server, self._secrets = server, secrets
        self._lock = asyncio.Lock()
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()

    async def tools(self) -> list[Tool]:
        """Ask what the server offers, over a new connection if the present one is broken.

        Raises:
            ToolDownError: it cannot be reached, or does not answer.
        """
        present, seconds = self._client, self._server.timeout_seconds
        if present is not None:
            try:
                return await self._list(present, seconds=seconds)
            except ToolDownError:
                await self._drop(present)
        client = await self._connected()
        try:
            return await self._list(client, seconds=seconds)
        except ToolDownError:
            await self._drop(client)
            raise

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool.

        An error or a time-out of a server that still answers is the tool's own failure.

        Raises:
            ToolDownError: the server does not answer any more.
        """
        client = await self._connected()
        seconds = self._server.timeout_seconds
        try:
            async with asyncio.timeout(seconds + PROBE_SECONDS):
                result = await client.call_tool(tool, dict(arguments), seconds)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the tool-call boundary: the policy is told
            return await self._judge(client, tool, error)
        return ToolResult(text=_text(result), failed=result.is_error)

    async def close(self) -> None:
        """Leave the server."""
        async with self._lock:
            await self._disconnect()

    async def _judge(self, client: Client, tool: str, error: Exception) -> ToolResult:
        message = _words(error)
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
        found: list[Tool] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(seconds):
                for _ in range(MOST_PAGES):
                    page = await client.list_tools(cursor=cursor)
                    found += [
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
        return found

    async def _connected(self) -> Client:
        async with self._lock:
            if self._client is not None and self._owner is not None and not self._owner.done():
                return self._client
            await self._disconnect()
            ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
            self._leave = asyncio.Event()
            self._owner = asyncio.create_task(
                self._own(ready, self._leave), name=f"mcp {self._server.name}"
            )
            try:
                async with asyncio.timeout(self._server.timeout_seconds):
                    self._client = await ready
            except (TimeoutError, ToolDownError, asyncio.CancelledError) as error:
                await self._disconnect()
                if isinstance(error, TimeoutError):
                    raise self._down(error) from error
                raise
            return self._client

    async def _own(self, ready: asyncio.Future[Client], leave: asyncio.Event) -> None:
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._new_client(stack))
                if not ready.cancelled():
                    ready.set_result(client)
                await leave.wait()
        except Exception as error:  # noqa: BLE001 - the tool-call boundary: told to who waits
            if not ready.done():
                ready.set_exception(self._down(error))
            else:
                logger.info("left MCP server %s: %s", self._server.name, _words(error))

    async def _new_client(self, stack: AsyncExitStack) -> Client:
        server = self._server
        if server.url is None:
            command, *arguments = server.command
            return Client(StdioServerParameters(command=command, args=arguments), cache=None)
        http = await stack.enter_async_context(create_mcp_http_client(headers=self._headers()))
        return Client(streamable_http_client(server.url, http_client=http), cache=None)

    def _headers(self) -> dict[str, str]:
        if self._server.token_secret_ref is None:
            return {}
        # Read anew for each connection: the kubelet brings a changed Secret into the file.
        token = (self._secrets / self._server.name / TOKEN_FILE).read_text().strip()
        return {"Authorization": f"Bearer {token}"}

    async def _drop(self, client: Client) -> None:
        """Give a broken connection up, unless somebody else already has."""
        async with self._lock:
            if self._client is client:
                await self._disconnect()

    async def _disconnect(self) -> None:
        owner, self._owner, self._client = self._owner, None, None
        if owner is None:
            return
        self._leave.set()
        done, _ = await asyncio.wait({owner}, timeout=PROBE_SECONDS)
        if not done:
            owner.cancel()
            await asyncio.wait({owner}, timeout=PROBE_SECONDS)

    def _down(self, error: BaseException) -> ToolDownError:
        where = self._server.url or " ".join(self._server.command)
        return ToolDownError(
            f"MCP server {self._server.name} ({where}) does not answer: {_words(error)}",
            server=self._server.name,
        )


def _words(error: BaseException) -> str:
    """The innermost cause's own words: the SDK's task groups wrap them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "it took too long"
    return (error.message if isinstance(error, MCPError) else str(error)) or type(error).__name__


def _text(result: CallToolResult) -> str:
    parts = [
        one.text if isinstance(one, TextContent) else f"[{one.type} left out]"
        for one in result.content
    ]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)
