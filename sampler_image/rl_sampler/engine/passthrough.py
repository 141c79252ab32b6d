"""An OpenAI-compatible API of the served policy for people, on the pod's loopback only.

``kubectl port-forward`` reaches it. The engine's own port is no substitute: it does not know which
adapter is the newest, may use prefixes of older weights where the cache outlives an update, and has
calls that pause the engine and change its weights.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import aiohttp
from aiohttp import web

from rl_sampler.engine.client import Engine
from rl_sampler.engine.errors import EngineError
from rl_sampler.engine.listening import KEPT, keep
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.serving import Serving, label_of

POLICY = "policy"
VERSION_HEADER = "X-Policy-Version"
"""Header with the version that answers. After an update during the answer, the body's ``metadata``
has the spans."""
AT_ONCE = 16
"""Requests of people that are answered at the same time; more are refused."""
BODY_BYTES = 16 << 20
"""Of one request, images included."""
TOO_LARGE = 413
SHUTDOWN_SECONDS = 1.0
"""A long answer must not delay the pod's end."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RefusedRequestError(Exception):
    """A request that cannot be forwarded to the engine."""

    def __init__(self, status: int, message: str) -> None:
        """Make the error; ``status`` is the HTTP status of the answer."""
        super().__init__(message)
        self.status = status


class Passthrough:
    """Forwards completion requests to the engine, and no other requests."""

    def __init__(
        self, engine: Engine, *, serving: Serving, problems: Problems, at_once: int = AT_ONCE
    ) -> None:
        """Forward requests to ``engine``, for the policy that ``serving`` names.

        Args:
            engine: that answers.
            serving: what it serves.
            problems: why it serves nothing.
            at_once: requests that are answered at the same time.
        """
        self._engine, self._serving, self._problems = engine, serving, problems
        self._at_once, self._running = at_once, 0

    def application(self) -> web.Application:
        """The aiohttp application."""
        application = web.Application(client_max_size=BODY_BYTES, middlewares=[as_json])
        application.router.add_get("/v1/models", self.models)
        application.router.add_post("/v1/chat/completions", self.complete)
        application.router.add_post("/v1/completions", self.complete)
        return application

    async def models(self, request: web.Request) -> web.Response:
        """List the served policy, and each version that requests may name."""
        try:
            names = [POLICY, *(f"{POLICY}:{version}" for version in await self._versions())]
        except (EngineError, RefusedRequestError) as error:
            return refusal(getattr(error, "status", 503), str(error))
        cards = [{"id": name, "object": "model", "owned_by": "rl-operator"} for name in names]
        return web.json_response({"object": "list", "data": cards})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Forward a request; the answer is streamed back as the engine sends it."""
        if self._running >= self._at_once:
            return refusal(429, f"{self._at_once} requests are being answered already: try later")
        self._running += 1
        if KEPT in request.app:
            keep(request)
        try:
            return await self._complete(request)
        finally:
            self._running -= 1

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        try:
            body = _body(await request.read())
            label = await self._label(str(body.get("model", POLICY)))
            # Hazard: await nothing between here and the request, or the adapter is unloaded.
            with self._using(label):
                return await self._forward(request, body | self._version_fields(label), label=label)
        except RefusedRequestError as error:
            return refusal(error.status, str(error))
        except EngineError as error:
            return refusal(503, str(error))
        except RecursionError:
            return refusal(400, "the body is nested too deep")

    async def _versions(self) -> list[str]:
        """Labels of the versions that the engine holds, with the served version."""
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
        known = ", ".join(f"{POLICY}:{version}" for version in held)
        raise RefusedRequestError(404, f"model {model!r} is not served; use {POLICY} or {known}")

    def _using(self, label: str) -> AbstractContextManager[None]:
        return self._serving.using(label) if self._serving.adapters else nullcontext()

    def _version_fields(self, label: str) -> dict[str, str]:
        """Fields that make the engine answer with this version only."""
        adapters = self._serving.adapters
        named = f"{POLICY}:{self._engine.adapter(label)}" if adapters else POLICY
        key = self._serving.cache_key
        return {"model": named} | ({"extra_key": key} if key else {})

    async def _forward(
        self, request: web.Request, body: dict[str, Any], *, label: str
    ) -> web.StreamResponse:
        response: web.StreamResponse | None = None
        try:
            async with self._engine.post_completion(request.path, body) as answer:
                response = web.StreamResponse(
                    status=answer.status,
                    headers={"Content-Type": answer.headers["Content-Type"], VERSION_HEADER: label},
                )
                await response.prepare(request)
                async for part in answer.content.iter_any():
                    await response.write(part)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if response is not None:  # a second answer would become a part of the first
                raise
            cause = str(error) or type(error).__name__
            raise RefusedRequestError(503, f"the engine does not answer: {cause}") from error


def _body(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError as error:
        raise RefusedRequestError(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RefusedRequestError(400, "the body is not a JSON object")
    return body


def refusal(status: int, message: str) -> web.Response:
    """An error in the form of OpenAI's API."""
    return web.json_response({"error": {"message": message, "code": status}}, status=status)


@web.middleware
async def as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give aiohttp's own refusals, e.g. of a body that is too large, the form of the others."""
    try:
        return await handler(request)
    except web.HTTPClientError as error:
        if error.status == TOO_LARGE:
            return too_large(BODY_BYTES)
        return refusal(error.status, error.reason)


def too_large(most: int) -> web.Response:
    """The refusal of a body of more than so many bytes."""
    return refusal(TOO_LARGE, f"the body has more than {most >> 20} MiB")


@asynccontextmanager
async def serving_people(application: web.Application, *, port: int | None) -> AsyncIterator[None]:
    """Serve people until the block ends; does nothing without a port."""
    if port is None:
        yield
        return
    runner = web.AppRunner(
        application,
        access_log=None,
        handler_cancellation=True,  # a client that disconnects ends its request in the engine
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield
    finally:
        await runner.cleanup()
