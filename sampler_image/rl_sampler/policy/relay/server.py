"""Hands verified policies to other samplers of the run, read-only.

A folder has its name only once all of it is verified, and whoever takes a file from here compares
its digests again: a peer can be slow or wrong, but it cannot make anyone serve wrong weights.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.typedefs import Handler

from rl_sampler.engine.weights import MANIFEST_FILE, WeightsFolder

POLICY = re.compile(r"(\d+)-\d+-[0-9a-z]+")
FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\.(safetensors|zst)")
TRANSFERS = 32
"""At a time; whoever comes after them is sent to the bucket."""


@dataclass(slots=True)
class _Places:
    free: int


class _Transfer(web.FileResponse):
    """Takes a place while it is sent."""

    def __init__(self, path: Path, places: _Places) -> None:
        super().__init__(path)
        self._places = places

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send it."""
        self._places.free -= 1
        try:
            return await super().prepare(request)
        finally:
            self._places.free += 1


class RelayServer:
    """Answers ``/policies/<folder>/<file>``: 404 for not yet, 410 for never, 503 for busy."""

    def __init__(self, weights: WeightsFolder, *, token: str, transfers: int = TRANSFERS) -> None:
        self._weights, self._token = weights, token
        self._places = _Places(transfers)

    def application(self) -> web.Application:
        """The route."""
        application = web.Application(middlewares=[self._guard])
        application.router.add_get("/policies/{policy}/{file}", self.file)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            raise web.HTTPForbidden
        return await handler(request)

    async def file(self, request: web.Request) -> web.StreamResponse:
        """A file of a policy, or a range of it."""
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
        if not self._places.free:
            raise web.HTTPServiceUnavailable
        return _Transfer(path, self._places)

    def _is_past(self, version: int) -> bool:
        """Whether a newer policy lies here: then this one will not come any more."""
        return any(int(found[1]) > version for found in self._held())

    def _held(self) -> list[re.Match[str]]:
        folder = self._weights.policies
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return [found for name in names if (found := POLICY.fullmatch(name))]
