"""An MCP server whose tools drive a real Chromium: each session has a browser context of its own.

    python server.py --port 8000

A session opens a page of `page.html` by its number and then acts by typed calls. Each answer has
the page's state as JSON, which `gui_scorer.py` judges, and a screenshot. Use it with
`scope: Episode`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from playwright.async_api import Error as BrowserError
from pydantic import Field

logger = logging.getLogger("browser")
PAGE = (Path(__file__).parent / "page.html").as_uri()
CHROMIUM = "/usr/bin/chromium-headless-shell"
SIDE = 112
"""Pixels of the screen on each side: whole squares of what a token of Qwen2.5-VL stands for."""
SECONDS = 20
IDLE_SECONDS = 900
"""A session that has not acted for so long is closed: a sampler that was killed ends none."""
ARGUMENTS = ("--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb")
Place = Annotated[int, Field(ge=0, lt=SIDE, description="pixels from the left or the top")]


class Screens:
    """The screens of all sessions."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._open: dict[str, tuple[BrowserContext, Page]] = {}
        self._acted: dict[str, float] = {}
        """Monotonic time of each session's last action."""

    async def open(self, session: str, number: int) -> Page:
        """Load a page in the session's own context."""
        await self.close(session)
        context = await self._browser.new_context(viewport={"width": SIDE, "height": SIDE})
        context.set_default_timeout(1000 * SECONDS)
        page = await context.new_page()
        self._open[session], self._acted[session] = (context, page), time.monotonic()
        await page.goto(f"{PAGE}?page={number}")
        return page

    def page(self, session: str) -> Page:
        """The session's page."""
        if session not in self._open:
            raise ToolError("no page is open: call open first")
        self._acted[session] = time.monotonic()
        return self._open[session][1]

    async def close(self, session: str) -> None:
        """Forget a session."""
        if session in self._open:
            context, _ = self._open.pop(session)
            del self._acted[session]
            await context.close()

    async def close_idle(self, seconds: float) -> None:
        """Forget sessions that have not acted for so long, again and again."""
        while True:
            await asyncio.sleep(seconds / 2)
            before = time.monotonic() - seconds
            for session in [name for name, acted in self._acted.items() if acted < before]:
                with contextlib.suppress(BrowserError):
                    await self.close(session)
                logger.warning("closed the screen of a session that did nothing for %g s", seconds)


async def shown(page: Page) -> list[Any]:
    """What a tool answers: the page's state, without what is empty, and a screenshot."""
    state = await page.evaluate("window.state()")
    text = json.dumps({name: value for name, value in state.items() if value})
    return [text, Image(data=await page.screenshot(animations="disabled"), format="png")]


class Actions:
    """The tools, by the names that the policy uses."""

    def __init__(self, screens: Callable[[], Screens]) -> None:
        self._screens = screens

    async def open(
        self, page: Annotated[int, Field(ge=0, le=999_999)], context: Context
    ) -> list[Any]:
        """Opens a page by its number."""
        return await shown(await self._screens().open(session_of(context), page))

    async def click(self, x: Place, y: Place, context: Context) -> list[Any]:
        """Clicks at a point of the screen."""
        page = self._page(context)
        return await acted(page, page.mouse.click(x, y))

    async def type(
        self, text: Annotated[str, Field(max_length=200)], context: Context
    ) -> list[Any]:
        """Types a text where the focus is."""
        page = self._page(context)
        return await acted(page, page.keyboard.type(text))

    async def scroll(
        self,
        down: Annotated[int, Field(ge=-1000, le=1000, description="pixels")],
        context: Context,
    ) -> list[Any]:
        """Scrolls the page; a negative number scrolls up."""
        page = self._page(context)
        return await acted(page, page.evaluate("pixels => window.scrollBy(0, pixels)", down))

    async def screenshot(self, context: Context) -> list[Any]:
        """Shows the screen as it is."""
        return await shown(self._page(context))

    async def done(self, context: Context) -> list[Any]:
        """Ends the episode."""
        return await shown(self._page(context))

    def _page(self, context: Context) -> Page:
        return self._screens().page(session_of(context))


def session_of(context: Context) -> str:
    """The session of a call."""
    return (context.headers or {}).get("mcp-session-id", "")


async def acted(page: Page, action: Awaitable[None]) -> list[Any]:
    """What a tool answers after an action."""
    try:
        await action
        return await shown(page)
    except BrowserError as error:
        raise ToolError(f"the browser did not do it: {error.message}") from error


def server_of(screens: Callable[[], Screens]) -> MCPServer:
    """The server with its tools."""
    server, actions = MCPServer("browser", log_level="WARNING"), Actions(screens)
    for action in (
        actions.open,
        actions.click,
        actions.type,
        actions.scroll,
        actions.screenshot,
        actions.done,
    ):
        server.tool(structured_output=False)(action)
    return server


class ClosesScreens:
    """Closes a session's context when the client ends the session."""

    def __init__(self, app: Any, screens: Callable[[], Screens]) -> None:
        self._app, self._screens = app, screens

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on."""
        await self._app(scope, receive, send)
        if scope["type"] == "http" and scope["method"] == "DELETE":
            session = dict(scope["headers"]).get(b"mcp-session-id", b"").decode()
            await self._screens().close(session)


@asynccontextmanager
async def browsing(executable: str) -> AsyncIterator[Browser]:
    """A Chromium without a window. In a container without user namespaces it has no sandbox."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=executable, chromium_sandbox=False, args=list(ARGUMENTS)
        )
        try:
            yield browser
        finally:
            await browser.close()


def app(executable: str, host: str, *, idle_seconds: float = IDLE_SECONDS) -> Any:
    """The server as an ASGI application."""
    held: list[Screens] = []
    server = server_of(lambda: held[0])
    inner = server.streamable_http_app(host=host)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with browsing(executable) as browser, server.session_manager.run():
            held.append(Screens(browser))
            closing = asyncio.create_task(held[0].close_idle(idle_seconds))
            try:
                yield
            finally:
                closing.cancel()

    inner.router.lifespan_context = lifespan
    return ClosesScreens(inner, lambda: held[0])


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 in a pod")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--chromium", default=CHROMIUM, help="the program")
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    given = parser.parse_args()
    application = app(given.chromium, given.host, idle_seconds=given.idle_seconds)
    uvicorn.run(application, host=given.host, port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
