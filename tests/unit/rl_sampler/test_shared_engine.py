"""An engine that agents of several runs give adapters to: each sees its own run's alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from rl_sampler.engine.client import Engine, open_session
from rl_sampler.engine.protocol import GenerateRequest

GENERATED = {"output_ids": [5], "meta_info": {"finish_reason": {"type": "stop"}}}
REQUEST = GenerateRequest(
    prompt=[1], members=1, temperature=1.0, max_new_tokens=1, stop_tokens=(), adapter="7"
)


class Held:
    """SGLang's calls about adapters: a dictionary of all runs' adapters."""

    def __init__(self, **held: str) -> None:
        self.held, self.asked = dict(held), list[str]()

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/v1/models", self.models)
        application.router.add_post("/load_lora_adapter", self.load)
        application.router.add_post("/unload_lora_adapter", self.unload)
        application.router.add_post("/generate", self.generate)
        return application

    async def models(self, request: web.Request) -> web.Response:
        cards: list[dict[str, Any]] = [{"id": "/w/base", "root": "/w/base", "parent": None}]
        cards += [{"id": name, "root": at, "parent": "/w/base"} for name, at in self.held.items()]
        return web.json_response({"data": cards})

    async def load(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.held[body["lora_name"]] = body["lora_path"]
        return web.json_response({})

    async def unload(self, request: web.Request) -> web.Response:
        del self.held[(await request.json())["lora_name"]]
        return web.json_response({})

    async def generate(self, request: web.Request) -> web.Response:
        self.asked.append((await request.json())["lora_path"])
        return web.json_response(GENERATED)


@pytest.mark.parametrize(("run", "others"), [("a", "b.7"), ("a", "aa.7"), ("a-b", "a.7")])
async def test_adapter_names_of_runs_are_distinct(run: str, others: str) -> None:
    held = Held(**{others: "/w/theirs/7"})
    async with TestServer(held.application()) as server, open_session() as session:
        engine = Engine(str(server.make_url("")), session=session, run=run, runs=2)
        assert await engine.adapters() == {}
        await engine.load_adapter(Path("/w/mine/7"), label="7", seconds=5)
        assert await engine.adapters() == {"7": "/w/mine/7"}
        await engine.generate(REQUEST)
        assert held.asked == [f"{run}.7"]
        await engine.unload_adapter("7")
        assert held.held == {others: "/w/theirs/7"}
