"""What the engine does when its weights change under running requests: why we do it as we do.

Each test is one behaviour that the agent relies on or keeps away from. What ends the server
altogether is in tests/chaos/rl_sampler.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from safetensors.numpy import save

from rl_sampler.engine.client import open_session
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.tiny_model import tensors
from tests.waiting import HUNG_SECONDS

PROMPT = [258, 16, 257, 18, 19, 20, 259]
LONG = 700
ENDLESS = 16_000
"""About 30 s of tokens: on a busy machine, too, the request still runs at the next call."""


@dataclass
class Running:
    """A request whose first token is there."""

    rid: str
    task: asyncio.Task[None]
    meta: dict[str, Any]
    """``meta_info`` of what came last; replaced with each part of the response."""
    part: asyncio.Event

    async def goes_on(self) -> None:
        """Wait for more tokens than can have been under way to us."""
        enough = self.meta["completion_tokens"] + 100
        async with asyncio.timeout(HUNG_SECONDS):
            while self.meta["completion_tokens"] < enough:
                assert not self.task.done()
                self.part.clear()
                await self.part.wait()

    async def ended(self) -> dict[str, Any]:
        """``meta_info`` of the whole response."""
        await self.task
        return self.meta


@dataclass
class Server:
    """The session's engine, called directly."""

    url: str
    session: aiohttp.ClientSession
    folder: Path
    loaded: int = 920

    async def post(self, path: str, **body: Any) -> tuple[int, Any]:
        """Status and answer."""
        limit = aiohttp.ClientTimeout(total=HUNG_SECONDS)
        async with self.session.post(self.url + path, json=body, timeout=limit) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text.startswith(("{", "[")) else text

    async def load(self, **fields: Any) -> tuple[int, str]:
        """Load other weights; returns the status and their label."""
        self.loaded += 1
        at = self.folder / str(self.loaded)
        at.mkdir()
        (at / "model.safetensors").write_bytes(
            save(tensors(self.loaded), metadata={"format": "pt"})
        )
        label = str(self.loaded)
        status, _ = await self.post(
            "/update_weights_from_disk",
            model_path=str(at),
            load_format="safetensors",
            weight_version=label,
            **fields,
        )
        return status, label

    async def sample(self, tokens: int = 4, **fields: Any) -> dict[str, Any]:
        """A whole response's ``meta_info``."""
        status, answer = await self.post("/generate", **a_request(tokens), **fields)
        assert status == 200, answer
        meta: dict[str, Any] = answer["meta_info"]
        return meta

    async def running(self, tokens: int = ENDLESS, **fields: Any) -> Running:
        """A request whose first token is there."""
        rid = uuid.uuid4().hex
        body = a_request(tokens) | {"stream": True, "rid": rid} | fields
        part = asyncio.Event()
        meta: dict[str, Any] = {}

        async def stream() -> None:
            try:
                async with self.session.post(self.url + "/generate", json=body) as answer:
                    assert answer.status == 200, await answer.text()
                    async for line in answer.content:
                        if line.startswith(b"data: {"):
                            meta.update(json.loads(line[len(b"data: ") :])["meta_info"])
                            part.set()
            finally:
                part.set()

        running = Running(rid, asyncio.create_task(stream()), meta, part)
        async with asyncio.timeout(HUNG_SECONDS):
            await part.wait()
        if not meta:
            await running.task
        return running

    async def aborted(self, running: Running) -> dict[str, Any]:
        """End a request; returns its ``meta_info``."""
        assert not running.task.done()
        await self.post("/abort_request", rid=running.rid)
        return await running.ended()


def a_request(tokens: int) -> dict[str, Any]:
    return {
        "input_ids": PROMPT,
        "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True},
    }


def versions(meta: dict[str, Any]) -> list[str]:
    return [weight_version["version"] for weight_version in meta["weight_versions"]]


@pytest.fixture
async def server(engine_server: EngineServer, tmp_path: Path) -> AsyncIterator[Server]:
    async with open_session() as session:
        client = Server(engine_server.url, session, tmp_path)
        assert (await client.load())[0] == 200
        yield client
        await client.post("/continue_generation")
        assert (await client.load())[0] == 200, "nothing runs any more and the cache is empty"


async def test_update_without_a_pause_waits_for_running_requests(server: Server) -> None:
    running, before = await server.running(LONG), str(server.loaded)
    status, label = await server.load()
    assert status == 200
    assert versions(await running.ended()) == [before]
    assert versions(await server.sample()) == [label]


async def test_update_may_abort_running_requests(server: Server) -> None:
    running, before = await server.running(), str(server.loaded)
    # The scheduler may still hold for a moment what was aborted: to flush its cache then is a 400.
    assert (await server.load(abort_all_requests=True, flush_cache=False))[0] == 200
    meta = await running.ended()
    assert meta["finish_reason"]["type"] == "abort"
    assert versions(meta) == [before]


async def test_retracted_request_continues_with_the_new_weights(server: Server) -> None:
    running, before = await server.running(), str(server.loaded)
    assert (await server.post("/pause_generation", mode="retract"))[0] == 200
    status, label = await server.load()
    assert status == 200
    await server.post("/continue_generation")
    await running.goes_on()
    meta = await server.aborted(running)
    assert (versions(meta), meta["num_retractions"]) == ([before, label], 1)


async def test_in_place_update_keeps_older_prefixes_for_the_same_cache_key(
    server: Server,
) -> None:
    running, before = await server.running(extra_key="before"), str(server.loaded)
    assert (await server.post("/pause_generation", mode="in_place"))[0] == 200
    status, label = await server.load(flush_cache=False)
    assert status == 200
    await server.post("/continue_generation")
    await running.goes_on()
    assert versions(await server.aborted(running)) == [before, label]
    stale = await server.sample(extra_key="before")
    assert (stale["cached_tokens"], versions(stale)) == (len(PROMPT) - 1, [label])
    fresh = await server.sample(extra_key="after")
    assert (fresh["cached_tokens"], versions(fresh)) == (0, [label])
    again = await server.sample(extra_key="after")
    assert again["cached_tokens"] == len(PROMPT) - 1


async def test_in_place_update_that_must_empty_the_cache_is_refused_but_applied(
    server: Server,
) -> None:
    running, before = await server.running(), str(server.loaded)
    assert (await server.post("/pause_generation", mode="in_place"))[0] == 200
    status, label = await server.load()
    assert status == 400
    async with server.session.get(server.url + "/model_info") as answer:
        assert (await answer.json())["weight_version"] == before, "its own report is not enough"
    await server.post("/continue_generation")
    await running.goes_on()
    assert versions(await server.aborted(running)) == [before, label]


async def test_paused_engine_answers_pings_but_is_not_ready(server: Server) -> None:
    assert (await server.post("/pause_generation", mode="retract"))[0] == 200
    statuses = {}
    for path in ("/ping", "/ready"):
        async with server.session.get(server.url + path) as answer:
            statuses[path] = answer.status
    assert statuses == {"/ping": 200, "/ready": 503}
    await server.post("/continue_generation")
    async with server.session.get(server.url + "/ready") as answer:
        assert answer.status == 200


async def test_engine_answers_chats_with_the_served_weights(server: Server) -> None:
    messages = [{"role": "user", "content": "1+1="}]
    status, answer = await server.post(
        "/v1/chat/completions", model="policy", messages=messages, max_tokens=4
    )
    assert status == 200
    assert answer["usage"]["prompt_tokens"] == len("1+1=") + 3, "by the chat template"
    assert answer["metadata"]["weight_version"] == str(server.loaded)


async def test_members_of_a_group_share_a_prefill(server: Server) -> None:
    status, answer = await server.post(
        "/generate", input_ids=PROMPT, sampling_params={"n": 4, "max_new_tokens": 2}
    )
    assert status == 200
    cached = [generation["meta_info"]["cached_tokens"] for generation in answer]
    assert cached == 4 * [len(PROMPT) - 1]
