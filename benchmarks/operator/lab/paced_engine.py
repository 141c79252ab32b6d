"""A stand-in for SGLang that samples at a given pace: sixteen real engines do not fit two cores.

It answers what the agent asks, with constant tokens, and counts each token that it has sampled:
those of requests that were given up, too. It loads no weights and holds no cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.contract.rl_sampler.tiny_model import ADDED, END

VERSION = "0.5.21"
SLOTS, LONGEST_INPUT = 32, 4096
TOKEN, STOP = ord("7"), 256 + ADDED.index(END)
LOG_PROBABILITY = -1.0


@dataclass
class PacedEngine:
    """One engine; all of its sequences are decoded side by side."""

    port: int
    tokens_per_second: float
    """Of each sequence."""
    sampled: int = 0
    """Tokens so far."""
    label: str = "base"
    resumed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def app(self) -> web.Application:
        """What the agent asks of an engine."""
        self.resumed.set()
        app = web.Application()
        for path in ("/ping", "/health"):
            app.router.add_get(path, self._well)
        app.router.add_get("/server_info", self._info)
        app.router.add_get("/model_info", self._model)
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/pause_generation", self._pause)
        app.router.add_post("/continue_generation", self._resume)
        app.router.add_post("/update_weights_from_disk", self._load)
        return app

    async def _well(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _info(self, _: web.Request) -> web.Response:
        sizes = {"max_running_requests": SLOTS, "max_req_input_len": LONGEST_INPUT}
        return web.json_response({"version": VERSION, **sizes})

    async def _model(self, _: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.label})

    async def _pause(self, _: web.Request) -> web.Response:
        self.resumed.clear()
        return web.json_response({})

    async def _resume(self, _: web.Request) -> web.Response:
        self.resumed.set()
        return web.json_response({})

    async def _load(self, request: web.Request) -> web.Response:
        self.label = (await request.json())["weight_version"]
        return web.json_response({"success": True})

    async def _generate(self, request: web.Request) -> web.Response:
        asked = (await request.json())["sampling_params"]
        await self.resumed.wait()
        members, tokens, label = asked["n"], asked["max_new_tokens"], self.label
        began, done = time.monotonic(), 0
        try:
            await asyncio.sleep(tokens / self.tokens_per_second)
            done = tokens
        finally:  # whoever asked may have gone
            passed = (time.monotonic() - began) * self.tokens_per_second
            self.sampled += members * (done or min(tokens, int(passed)))
        sequence = _sequence(tokens, label)
        return web.json_response([sequence] * members if members > 1 else sequence)


def _sequence(tokens: int, label: str) -> dict[str, Any]:
    ids = [TOKEN] * (tokens - 1) + [STOP]
    return {
        "output_ids": ids,
        "meta_info": {
            "finish_reason": {"type": "stop"},
            "output_token_logprobs": [[LOG_PROBABILITY, token, None] for token in ids],
            "weight_versions": [{"version": label, "start": 0, "end": tokens}],
        },
    }


@contextlib.contextmanager
def listening(engines: list[PacedEngine]) -> Iterator[None]:
    """Serve them in a thread until the end of the block."""
    loop, up = asyncio.new_event_loop(), threading.Event()

    async def start() -> list[web.AppRunner]:
        runners = []
        for engine in engines:
            runner = web.AppRunner(engine.app(), handler_cancellation=True)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", engine.port).start()
            runners.append(runner)
        return runners

    def run() -> None:
        asyncio.set_event_loop(loop)
        runners = loop.run_until_complete(start())
        up.set()
        loop.run_forever()
        for runner in runners:
            loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    up.wait()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
