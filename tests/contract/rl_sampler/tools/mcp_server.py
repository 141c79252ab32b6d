"""An MCP server for the tests: ``python mcp_server.py`` on stdio, ``--port N`` on HTTP."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
from typing import Any

import PIL.Image
import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("calculator")
remembered: dict[str, list[str]] = {}
"""Texts by session; a program on stdio has one."""


@server.tool()
def add(a: int, b: int) -> str:
    """Adds two whole numbers."""
    return str(a + b)


@server.tool()
def divide(a: int, b: int) -> str:
    """Divides; fails for 0."""
    if b == 0:
        raise ToolError("nothing can be divided by 0")
    return str(a // b)


@server.tool()
async def wait(seconds: float) -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return "done"


@server.tool()
def crash() -> str:
    """Ends the server."""
    os._exit(1)


@server.tool()
def remember(text: str, context: Context) -> str:
    """All texts that this session was given."""
    session = (context.headers or {}).get("mcp-session-id", "")
    remembered.setdefault(session, []).append(text)
    return " ".join(remembered[session])


@server.tool()
def traced(context: Context) -> str:
    """The caller's span, as W3C writes it; empty where there is none."""
    meta: Any = context.request_context.meta or {}
    return str(meta.get("traceparent", ""))


@server.tool(structured_output=False)
def draw(width: int, height: int) -> list[Any]:
    """A blank picture of so many pixels, after a word about it."""
    file = io.BytesIO()
    PIL.Image.new("RGB", (width, height)).save(file, "PNG")
    return ["a picture", Image(data=file.getvalue(), format="png")]


class Guarded:
    """Lets only those in who bear the token."""

    def __init__(self, app: Any, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", []))
        if (
            scope["type"] == "http"
            and headers.get(b"authorization") != f"Bearer {self._token}".encode()
        ):
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"who are you?"})
            return
        await self._app(scope, receive, send)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--token", default="")
    arguments = parser.parse_args()
    if arguments.port is None:
        server.run("stdio")
        return
    app: Any = server.streamable_http_app()
    if arguments.token:
        app = Guarded(app, arguments.token)
    uvicorn.run(app, host="127.0.0.1", port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
