"""Serves verified policies to other samplers of the run, read-only.

A folder has its name only once all of it is verified, and the receiver compares the digests again:
a peer can be slow or wrong, but it cannot make another sampler serve wrong weights.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakSet

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.typedefs import Handler

from rl_sampler.engine.listening import KEPT, keep
from rl_sampler.engine.weights import MANIFEST_FILE, WeightsFolder

POLICY = re.compile(r"(\d+)-\d+-[0-9a-z]+")
FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\.(safetensors|zst)")
TRANSFERS = 32
"""Concurrent transfers; further requests get 503, and their senders use the bucket."""


@dataclass(slots=True)
class _TransferSlots:
    free: int


class _Transfer(web.FileResponse):
    """A file that holds a transfer slot while it is sent."""

    def __init__(self, path: Path, slots: _TransferSlots) -> None:
        super().__init__(path)
        self._slots = slots

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send the file."""
        self._slots.free -= 1
        try:
            return await super().prepare(request)
        finally:
            self._slots.free += 1


class RelayServer:
    """Answers ``/policies/<folder>/<file>``: 404 for not yet, 410 for never, 503 when busy."""

    def __init__(self, weights: WeightsFolder, *, token: str, transfers: int = TRANSFERS) -> None:
        self._weights, self._token = weights, token
        self._slots = _TransferSlots(transfers)

    def application(self) -> web.Application:
        """The aiohttp application."""
        application = web.Application(middlewares=[self._guard])
        application[KEPT] = WeakSet()
        application.router.add_get("/policies/{policy}/{file}", self.file)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            raise web.HTTPForbidden
        keep(request)
        return await handler(request)

    async def file(self, request: web.Request) -> web.StreamResponse:
        """Answer with a file of a policy, or a range of it."""
        policy, name = request.match_info["policy"], request.match_info["file"]
        matched = POLICY.fullmatch(policy)
        if matched is None or not (name == MANIFEST_FILE or FILE.fullmatch(name)):
            raise web.HTTPGone
        folder = self._weights.policies / policy
        if not folder.is_dir():
            raise web.HTTPGone if self._is_past(int(matched[1])) else web.HTTPNotFound
        path = folder / name
        if not path.is_file() or path.is_symlink():
            raise web.HTTPGone
        if not self._slots.free:
            raise web.HTTPServiceUnavailable
        return _Transfer(path, self._slots)

    def _is_past(self, version: int) -> bool:
        """Whether a newer policy is staged: then this version will never be."""
        return any(int(name[1]) > version for name in self._staged())

    def _staged(self) -> list[re.Match[str]]:
        folder = self._weights.policies
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return [matched for name in names if (matched := POLICY.fullmatch(name))]
