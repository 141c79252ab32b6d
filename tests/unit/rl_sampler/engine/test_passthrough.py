"""The port for people, in front of an engine that keeps its requests waiting."""

from __future__ import annotations

import asyncio
import io
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from rl_contracts.documents.run import PolicyPointer
from rl_sampler.engine.client import Engine, open_session
from rl_sampler.engine.passthrough import BODY_BYTES, Passthrough
from rl_sampler.engine.problems import Problems
from rl_sampler.engine.protocol import ServerInfo
from rl_sampler.engine.serving import Serving

POINTER = PolicyPointer(version=1, epoch=1, step=1, prefix="p/", manifest_sha256="0")
INFO = ServerInfo(version="0.5.21", max_req_input_len=64, max_running_requests=2)
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "policy", "messages": [{"role": "user", "content": "a"}]}


async def test_few_are_answered_at_once_and_the_others_are_refused_in_openais_form() -> None:
    go_on = asyncio.Event()
    waiting = asyncio.Semaphore(0)

    async def answer(request: web.Request) -> web.Response:
        waiting.release()
        await go_on.wait()
        return web.json_response({"choices": []})

    engine = web.Application()
    engine.router.add_post(CHAT, answer)
    serving = Serving(engine=INFO, policy=POINTER)
    async with TestServer(engine) as behind, open_session() as http:
        client = Engine(str(behind.make_url("")), session=http)
        people = Passthrough(client, serving=serving, problems=Problems(), at_once=2)
        async with TestServer(people.application()) as server:
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
                assert (large.status, body["error"]["message"]) == (
                    413,
                    "the body has more than 16 MiB",
                )
            async with http.get(server.make_url("/nowhere")) as missing:
                assert (await missing.json())["error"]["code"] == 404
