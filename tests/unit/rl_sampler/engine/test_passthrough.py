"""The port for people, in front of an engine that keeps its requests waiting."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession, web
from aiohttp.test_utils import BaseTestServer, TestServer

from rl_contracts.documents.run import PolicyPointer
from rl_sampler.engine.client import Engine, open_session
from rl_sampler.engine.passthrough import AT_ONCE, BODY_BYTES, Handler, Passthrough
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.protocol import ServerInfo
from rl_sampler.engine.serving import Serving

POINTER = PolicyPointer(version=1, epoch=1, step=1, prefix="p/", manifest_sha256="0")
INFO = ServerInfo(version="0.5.21", max_req_input_len=64, max_running_requests=2)
CHAT = "/v1/chat/completions"
PART = b'data: {"choices": []}\n\n'
BODY: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "a"}]}


@asynccontextmanager
async def people_at(engine: Handler, *, at_once: int = AT_ONCE) -> AsyncIterator[BaseTestServer]:
    """The port for people in front of an engine that answers so."""
    application = web.Application()
    application.router.add_post(CHAT, engine)
    serving = Serving(engine=INFO, policy=POINTER)
    async with TestServer(application) as behind, open_session() as http:
        client = Engine(str(behind.make_url("")), session=http)
        people = Passthrough(client, serving=serving, problems=Problems(), at_once=at_once)
        async with TestServer(people.application()) as server:
            yield server


async def is_not_asked(request: web.Request) -> web.Response:
    raise AssertionError("it was asked")


async def dies(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def dies_while_it_answers(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(PART)
    assert request.transport is not None
    request.transport.close()
    return response


@pytest.mark.parametrize(
    ("engine", "body", "status", "message"),
    [
        (dies, json.dumps(BODY), 503, "the engine does not answer: Server disconnected"),
        (is_not_asked, "[" * 200_000, 400, "the body is nested too deep"),
        (is_not_asked, "{", 400, "the body is not JSON"),
    ],
)
async def test_what_cannot_be_answered_is_refused_in_openais_form(
    engine: Handler, body: str, status: int, message: str
) -> None:
    async with (
        people_at(engine) as server,
        ClientSession() as http,
        http.post(server.make_url(CHAT), data=body) as refused,
    ):
        error = (await refused.json())["error"]
    assert (refused.status, error["code"]) == (status, status)
    assert message in error["message"]


async def test_an_engine_that_ends_in_the_middle_of_an_answer_tears_it() -> None:
    async with (
        people_at(dies_while_it_answers) as server,
        ClientSession() as http,
        http.post(server.make_url(CHAT), json=BODY) as torn,
    ):
        assert (torn.status, await torn.content.readexactly(len(PART))) == (200, PART)
        with pytest.raises(ClientPayloadError):
            await torn.read()


async def test_few_are_answered_at_once_and_the_others_are_refused_in_openais_form() -> None:
    go_on = asyncio.Event()
    waiting = asyncio.Semaphore(0)

    async def answer(request: web.Request) -> web.Response:
        waiting.release()
        await go_on.wait()
        return web.json_response({"choices": []})

    async with people_at(answer, at_once=2) as server, ClientSession() as http:
        url = server.make_url(CHAT)
        first = [asyncio.create_task(http.post(url, json=BODY)) for _ in range(2)]
        async with asyncio.timeout(30):
            for _ in first:
                await waiting.acquire()
        async with http.post(url, json=BODY) as refused:
            body = await refused.json()
            assert (refused.status, body["error"]["code"]) == (429, 429)
            assert body["error"]["message"].startswith("2 requests are being answered already")
        go_on.set()
        for each in first:
            async with await each as answered:
                assert answered.status == 200
        async with http.post(url, json=BODY) as later:
            assert later.status == 200
        async with http.post(url, data=io.BytesIO(bytes(BODY_BYTES + 1))) as large:
            body = await large.json()
            message = body["error"]["message"]
            assert (large.status, message) == (413, "the body has more than 16 MiB")
        async with http.get(server.make_url("/nowhere")) as missing:
            assert (await missing.json())["error"]["code"] == 404
