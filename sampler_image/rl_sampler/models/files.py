"""Hands out a staged model's files on the pod's loopback, where a port-forward reaches them.

It listens while the model is still being staged, and says so. Ranges let an interrupted download go
on. Nobody who asks for a while means that the other side is gone: then the process ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from rl_contracts.handout import (
    FILES_PATH,
    INDEX_PATH,
    QUIET_SECONDS,
    HandedFile,
    HandedModel,
)
from rl_contracts.model_files import file_digest, is_plain_file_name

STAGING = 503


class HandedFiles:
    """Answers for the files of one folder."""

    def __init__(self) -> None:
        """Nothing is staged yet."""
        self._folder: Path | None = None
        self._model: HandedModel | None = None
        self._asked = asyncio.Event()
        self._running = 0

    def application(self) -> web.Application:
        """The aiohttp application."""
        application = web.Application()
        application.router.add_get(INDEX_PATH, self.index)
        application.router.add_get(FILES_PATH + "{name}", self.file)
        return application

    async def stage(self, make: Callable[[], Path]) -> None:
        """Make the folder in a thread, and list it; raises what ``make`` raises."""
        folder = await asyncio.to_thread(make)
        self._model = await asyncio.to_thread(listed, folder)
        self._folder = folder

    async def index(self, request: web.Request) -> web.Response:
        """The files with their sizes and digests, once they are staged."""
        self._asked.set()
        if self._model is None:
            return web.Response(status=STAGING, text="the model is being staged")
        return web.Response(text=self._model.model_dump_json(), content_type="application/json")

    async def file(self, request: web.Request) -> web.StreamResponse:
        """One file, or a range of it."""
        name = request.match_info["name"]
        path = None if self._folder is None else self._folder / name
        if path is None or not is_plain_file_name(name) or not path.is_file():
            raise web.HTTPNotFound
        self._running += 1
        try:
            response = web.FileResponse(path)
            await response.prepare(request)
            return response
        finally:
            self._running -= 1
            self._asked.set()

    async def until_quiet(self) -> None:
        """Wait until nobody has asked for ``QUIET_SECONDS``."""
        while True:
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._asked.wait()
            except TimeoutError:
                if not self._running:
                    return
            self._asked.clear()


def listed(folder: Path) -> HandedModel:
    """The files of a folder with their digests."""
    return HandedModel(
        files=tuple(
            HandedFile(name=path.name, size_bytes=path.stat().st_size, sha256=file_digest(path))
            for path in sorted(folder.iterdir())
        )
    )
