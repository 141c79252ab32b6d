"""For people: OpenAI's API of the policy that is served, on the pod's loopback alone.

``kubectl port-forward`` reaches it. The engine's own port would do, but it does not know which
adapter is the newest, keeps prefixes of older weights where the cache outlives an update, and has
the calls that pause it and change its weights.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import aiohttp
from aiohttp import web

from rl_sampler.engine.client import Engine
from rl_sampler.engine.errors import EngineError
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving, label_of

POLICY = "policy"
VERSION_HEADER = "X-Policy-Version"
"""Version that answers; where an update comes meanwhile, the body's ``metadata`` has the spans."""
SHUTDOWN_SECONDS = 1.0
"""A person's long answer does not hold up a pod that stops."""


class RefusedRequestError(Exception):
    """A request that cannot be passed on."""

    def __init__(self, status: int, message: str) -> None:
        """Say why, with the status to answer."""
        super().__init__(message)
        self.status = status


class Passthrough:
    """Passes on completions and nothing else."""

    def __init__(self, engine: Engine, *, serving: Serving, problems: Problems) -> None:
        """Pass on to ``engine`` what ``serving`` says that it serves."""
        self._engine, self._serving, self._problems = engine, serving, problems

    def application(self) -> web.Application:
        """The routes."""
        application = web.Application()
        application.router.add_get("/v1/models", self.models)
        application.router.add_post("/v1/chat/completions", self.complete)
        application.router.add_post("/v1/completions", self.complete)
        return application

    async def models(self, request: web.Request) -> web.Response:
        """The policy, and each version that can be named."""
        try:
            names = [POLICY, *(f"{POLICY}:{version}" for version in await self._versions())]
        except (EngineError, RefusedRequestError) as error:
            return _refusal(getattr(error, "status", 503), str(error))
        cards = [{"id": name, "object": "model", "owned_by": "rl-operator"} for name in names]
        return web.json_response({"object": "list", "data": cards})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on; the answer comes back as the engine gives it."""
        try:
            body = _body(await request.read())
            label = await self._label(str(body.get("model", POLICY)))
            # Nothing may be awaited between here and the request: the adapter would go.
            with self._using(label):
                return await self._pass_on(request, body | self._additions(label), label=label)
        except RefusedRequestError as error:
            return _refusal(error.status, str(error))
        except EngineError as error:
            return _refusal(503, str(error))

    async def _versions(self) -> list[str]:
        """Those that the engine holds, the one that ``policy`` means among them."""
        policy = self._serving.policy
        if self._serving.engine is None or policy is None:
            raise RefusedRequestError(503, str(self._problems) or "no policy is served yet")
        if not self._serving.adapters:
            return [label_of(policy)]
        return sorted(await self._engine.adapters(), key=lambda adapter: (len(adapter), adapter))

    async def _label(self, model: str) -> str:
        held = await self._versions()
        _, _, wanted = model.partition(":")
        policy = self._serving.policy
        if not wanted and policy is not None:
            return label_of(policy)
        if wanted in held:
            return wanted
        known = ", ".join(f"{POLICY}:{one}" for one in held)
        raise RefusedRequestError(
            404, f"model {model!r} is not served; known are {POLICY}, {known}"
        )

    def _using(self, label: str) -> AbstractContextManager[None]:
        return self._serving.using(label) if self._serving.adapters else nullcontext()

    def _additions(self, label: str) -> dict[str, str]:
        """What makes the engine answer by this version alone."""
        adapters = self._serving.adapters
        named = f"{POLICY}:{self._engine.adapter(label)}" if adapters else POLICY
        key = self._serving.cache_key
        return {"model": named} | ({"extra_key": key} if key else {})

    async def _pass_on(
        self, request: web.Request, body: dict[str, Any], *, label: str
    ) -> web.StreamResponse:
        try:
            async with self._engine.completing(request.path, body) as answer:
                response = web.StreamResponse(
                    status=answer.status,
                    headers={"Content-Type": answer.headers["Content-Type"], VERSION_HEADER: label},
                )
                await response.prepare(request)
                async for part in answer.content.iter_any():
                    await response.write(part)
                await response.write_eof()
                return response
        except (aiohttp.ClientConnectorError, TimeoutError) as error:
            raise RefusedRequestError(503, f"the engine does not answer: {error}") from error


def _body(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError as error:
        raise RefusedRequestError(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RefusedRequestError(400, "the body is not a JSON object")
    return body


def _refusal(status: int, message: str) -> web.Response:
    """In the form of OpenAI's API."""
    return web.json_response({"error": {"message": message, "code": status}}, status=status)


@asynccontextmanager
async def passing_on(passthrough: Passthrough, *, port: int | None) -> AsyncIterator[None]:
    """Serve people until the block ends; does nothing without a port."""
    if port is None:
        yield
        return
    runner = web.AppRunner(
        passthrough.application(),
        access_log=None,
        handler_cancellation=True,  # who leaves has the engine stop
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield
    finally:
        await runner.cleanup()
