"""Programs that drop a stream before its end, against an engine over HTTP."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.agent.agents import Sampling
from rl_sampler.agents.chat import Chats
from rl_sampler.agents.policy import Policy
from rl_sampler.engine.client import Engine, open_session
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.protocol import ServerInfo
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.slots import Slots
from rl_sampler.gateway.server import Gateway
from rl_sampler.gateway.session import Session
from rl_sampler.gateway.sessions import Sessions
from rl_sampler.tasks.claims import Claim
from tests.samples.documents import a_task
from tests.unit.rl_sampler.agents.chat_models import real_prompts
from tests.waiting import HUNG_SECONDS

POINTER = PolicyPointer(version=1, epoch=1, step=1, prefix="p/", manifest_sha256="0")
BODY = {"model": "m", "messages": [{"role": "user", "content": "a"}]}


class EndlessEngine:
    """Streams letters until its client leaves; without a stream it says ``b``."""

    def __init__(self, letter: int, end: int) -> None:
        self.left, self._letter, self._end = asyncio.Event(), letter, end

    async def generate(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if not asked.get("stream"):
            return web.json_response(self._event(2, [self._letter, self._end], ended=True))
        response = web.StreamResponse()
        try:
            await response.prepare(request)
            for total in range(1, 100_000):
                line = b"data: " + json.dumps(self._event(total, [self._letter])).encode() + b"\n\n"
                await response.write(line)
                await asyncio.sleep(0.001)
        finally:
            self.left.set()
        return response

    def _event(self, total: int, tokens: list[int], *, ended: bool = False) -> dict[str, Any]:
        return {
            "output_ids": tokens,
            "meta_info": {
                "finish_reason": {"type": "stop", "matched": self._end} if ended else None,
                "completion_tokens": total,
                "output_token_logprobs": [[-0.5, token, None] for token in tokens],
                "weight_versions": [{"version": "1", "start": 0, "end": total}],
            },
        }


async def test_stream_that_its_program_drops_ends_in_the_engine_and_fails_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = web.StreamResponse.write

    async def torn(response: web.StreamResponse, data: bytes) -> None:
        """The connection of the program's stream is lost with its first text."""
        if b'"content": "b"' in data:
            raise ConnectionResetError("Cannot write to closing transport")
        await write(response, data)

    monkeypatch.setattr(web.StreamResponse, "write", torn)
    prompts = real_prompts("qwen3_instruct_2507")
    (letter,), (end,) = prompts.tokens("b"), prompts.stop_tokens
    fake = EndlessEngine(letter, end)
    application, sessions = web.Application(), Sessions()
    application.router.add_post("/generate", fake.generate)
    async with TestServer(application) as server, open_session() as http:
        policy = Policy(
            claim=Claim(task=a_task(), renewed=0.0),
            sampling=Sampling(),
            stop_tokens=prompts.stop_tokens,
            engine=Engine(str(server.make_url("")), session=http),
            watch=cast(Any, SimpleNamespace(check_soon=lambda: None)),
            serving=Serving(
                engine=ServerInfo(version="0.5.23", max_running_requests=8, max_req_input_len=4096),
                policy=POINTER,
                known={"1": POINTER},
            ),
            slots=Slots(),
            counters=Counters(),
        )
        session = Session(
            policy=policy, chats=Chats(prompts), form="Hermes", most_responses=9, streams=True
        )
        sessions.open(session)
        async with (
            TestServer(Gateway(sessions).application()) as gateway,
            ClientSession(str(gateway.make_url("/"))) as program,
            asyncio.timeout(HUNG_SECONDS),
        ):
            headers = {"Authorization": f"Bearer {session.key}"}
            body = BODY | {"stream": True}
            answer = await program.post("/v1/chat/completions", json=body, headers=headers)
            await fake.left.wait()
            answer.close()
            async with program.post("/v1/chat/completions", json=BODY, headers=headers) as answered:
                text = (await answered.json())["choices"][0]["message"]["content"]
    assert text == "b"
    assert session.failure is None
    assert len(session.tree) == 1, "a dropped response is no data"
    assert policy.slots.demand == 0
