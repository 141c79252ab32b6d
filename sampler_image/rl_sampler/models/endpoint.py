"""An OpenAI-compatible endpoint of one model that stays the same, in front of an engine.

The engine listens on loopback, because its own API has calls that change its weights.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakSet

from aiohttp import web

from rl_sampler.engine.client import Engine
from rl_sampler.engine.errors import EngineError
from rl_sampler.engine.listening import KEPT
from rl_sampler.engine.passthrough import Handler, Passthrough, RefusedRequestError, refusal
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving

READY_PATH = "/ready"
WATCH_SECONDS = 1.0
AT_ONCE = 128
"""Requests that are answered or wait in the engine at the same time; more are refused."""
CONNECTIONS = 2 * AT_ONCE
"""Those beyond the requests that are answered are refused quickly, or idle."""


class ServedModel(Passthrough):
    """Forwards completion requests for one model, under any name that a client gives it."""

    def __init__(self, engine: Engine, *, name: str, key: str = "") -> None:
        """Forward to an engine once it answers.

        Args:
            engine: has loaded the model.
            name: ``final``, or the version's number; in each answer's header.
            key: that requests must carry; empty: none.
        """
        self._watched = Serving()
        super().__init__(engine, serving=self._watched, problems=Problems(), at_once=AT_ONCE)
        self._name, self._key = name, key

    def application(self) -> web.Application:
        """The aiohttp application, with a probe."""
        application = super().application()
        application[KEPT] = WeakSet()
        application.router.add_get(READY_PATH, self.ready)
        if self._key:
            application.middlewares.append(self._check)
        return application

    async def ready(self, request: web.Request) -> web.Response:
        """Whether the engine answers; for the kubelet, without a key."""
        up = self._watched.engine is not None
        return web.Response(status=200 if up else 503, text="")

    async def watch(self) -> None:
        """Look whether the engine answers, until cancelled."""
        while True:
            try:
                self._watched.engine = await self._engine.server_info()
            except EngineError:
                self._watched.engine = None
            await asyncio.sleep(WATCH_SECONDS)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch the engine until the block ends."""
        watch = asyncio.create_task(self.watch(), name="engine watch")
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.wait({watch})

    @web.middleware
    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode()
        if request.path != READY_PATH and not hmac.compare_digest(
            given, f"Bearer {self._key}".encode()
        ):
            return refusal(401, "the API key is missing or wrong")
        return await handler(request)

    async def _versions(self) -> list[str]:
        if self._watched.engine is None:
            raise RefusedRequestError(503, "the engine starts, or does not answer")
        return [self._name]

    async def _label(self, model: str) -> str:
        (name,) = await self._versions()
        return name
