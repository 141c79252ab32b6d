"""The gateway's HTTP server: three APIs, one session for each key."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any
from weakref import WeakSet

from aiohttp import web

from rl_contracts import env
from rl_contracts.env import EnvironmentVariableError
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.listening import KEPT, keep, listening
from rl_sampler.gateway import anthropic_messages, openai_chat, openai_responses
from rl_sampler.gateway.asked import RefusedRequestError
from rl_sampler.gateway.body import parsed_body
from rl_sampler.gateway.session import Placed, Session
from rl_sampler.gateway.sessions import Sessions

CONNECTIONS = 2048
BODY_BYTES = 32 << 20
RESULT_PATH = "/session/result"
POLICY = "policy"
BEARER = "bearer "
LOOPBACK = "127.0.0.1"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ProgramLeftError(Exception):
    """A program dropped its stream.

    It is no ConnectionError, which the client of the engine would take for the engine's.
    """


class Gateway:
    """Answers the programs' requests."""

    def __init__(self, sessions: Sessions) -> None:
        """Answer for these sessions."""
        self._sessions = sessions

    def application(self) -> web.Application:
        """The aiohttp application."""
        application = web.Application(client_max_size=BODY_BYTES, middlewares=[_in_api_form])
        application[KEPT] = WeakSet()
        router = application.router
        router.add_post("/v1/chat/completions", self._answering(openai_chat))
        router.add_post("/v1/responses", self._answering(openai_responses))
        router.add_post("/v1/messages", self._answering(anthropic_messages))
        router.add_post("/v1/messages/count_tokens", self._count)
        router.add_get("/v1/models", self._models)
        router.add_get("/v1/models/{model:.+}", self._model)
        router.add_post(RESULT_PATH, self._report)
        return application

    def _answering(self, api: ModuleType) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            session = self._session(request)
            asked = api.parse(await _body(request, session, answered=True))
            with session.admitted(asked) as placed:
                if asked.stream:
                    return await _streamed(request, api, session, placed)
                reply = await session.answer(placed)
            return web.json_response(api.answer(reply, asked))

        return handle

    async def _count(self, request: web.Request) -> web.Response:
        session = self._session(request)
        asked = anthropic_messages.parse_count(await _body(request, session))
        return web.json_response({"input_tokens": session.count(asked)})

    async def _models(self, request: web.Request) -> web.Response:
        self._session(request)
        return web.json_response({"object": "list", "data": [_card(POLICY)], "has_more": False})

    async def _model(self, request: web.Request) -> web.Response:
        self._session(request)
        return web.json_response(_card(request.match_info["model"]))

    async def _report(self, request: web.Request) -> web.Response:
        session = self._session(request)
        body = await _body(request, session)
        if not isinstance(body, dict):
            raise RefusedRequestError("post an object with reward and metrics")
        session.report(body)
        return web.json_response({})

    def _session(self, request: web.Request) -> Session:
        """The session of a request's key; its connection is kept from then on."""
        given = request.headers.get("Authorization", "")
        key = given[len(BEARER) :] if given[: len(BEARER)].lower() == BEARER else ""
        session = self._sessions.of(request.headers.get("x-api-key") or key.strip())
        keep(request)
        return session


async def _body(request: web.Request, session: Session, *, answered: bool = False) -> object:
    """The JSON of a request, to be answered by the policy or not; raises RefusedRequestError."""
    data = await request.read()
    session.check_size(len(data), answered=answered)
    return parsed_body(data)


async def _streamed(
    request: web.Request, api: ModuleType, session: Session, placed: Placed
) -> web.StreamResponse:
    """Stream an answer; what a program that has left does not read is not sampled either."""
    response = web.StreamResponse(headers={"Cache-Control": "no-cache"})
    response.content_type = "text/event-stream"
    stream = api.Stream(placed.asked, number=secrets.token_hex(12), created=int(time.time()))

    async def emit(number: int, part: str) -> None:
        try:
            await response.write(stream.text(number, part))
        except ConnectionError as error:
            raise ProgramLeftError from error

    with contextlib.suppress(ProgramLeftError, ConnectionError):
        await response.prepare(request)
        await response.write(stream.begin())
        try:
            reply = await session.answer(placed, emit)
        except RefusedRequestError as error:
            await response.write(stream.failed(error))
        else:
            await response.write(stream.end(reply))
        await response.write_eof()
    return response


@web.middleware
async def _in_api_form(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give every error the form of the API that was asked."""
    api: Any = anthropic_messages if request.path.startswith("/v1/messages") else openai_chat
    try:
        return await handler(request)
    except RefusedRequestError as error:
        return web.json_response(api.error(error), status=error.status)
    except RecursionError:
        refused = RefusedRequestError("the body is nested too deep")
        return web.json_response(api.error(refused), status=refused.status)
    except web.HTTPException as error:
        refused = RefusedRequestError(
            f"{request.method} {request.path}: {error.reason}", status=error.status
        )
        return web.json_response(api.error(refused), status=error.status)


def _card(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "rl-operator"}


def gateway_port_of(assignment: Assignment) -> int | None:
    """The gateway's port; None where no program asks.

    Raises:
        EnvironmentVariableError: the manifest has a program, but the operator set no port.
    """
    if assignment.spec.agent.program is None:
        return None
    if assignment.env.gateway_port is None:
        raise EnvironmentVariableError(f"environment variable {env.GATEWAY_PORT} is not set")
    return assignment.env.gateway_port


def gateway_host_of(assignment: Assignment) -> str:
    """The IP address that programs reach: the pod's from pods of programs, else the loopback."""
    env = assignment.env
    return (env.pod_ip if env.programs else "") or LOOPBACK


@asynccontextmanager
async def serving_gateway(
    sessions: Sessions, *, port: int | None, host: str = LOOPBACK
) -> AsyncIterator[None]:
    """Serve until the block ends, on an IP address of the pod; does nothing without a port."""
    if port is None:
        yield
        return
    application = Gateway(sessions).application()
    async with listening(application, port=port, connections=CONNECTIONS, host=host, cancels=True):
        yield
