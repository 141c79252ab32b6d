"""A stand-in for SGLang whose policy calls a tool in each turn: no model this small does."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from aiohttp import web
from tokenizers import Tokenizer

from tests.contract.rl_sampler.tiny_model import END
from tests.servers import free_port
from tests.waiting import HUNG_SECONDS

SLOTS, LONGEST_INPUT = 16, 4096


@dataclass
class CallingEngine:
    """In turn n it calls ``remember`` with n, and in the last turn it answers."""

    model: Path
    """Its tokenizer writes what the policy says."""
    turns: int
    held_turn: int = 0
    """Requests of this turn are never answered; 0: none."""
    port: int = field(default_factory=free_port)
    label: str = "base"
    asked: list[int] = field(default_factory=list)
    """The turn of each response that was asked for."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def listening(self) -> Iterator[None]:
        loop, up = asyncio.new_event_loop(), threading.Event()

        async def start() -> web.AppRunner:
            runner = web.AppRunner(self._app(), handler_cancellation=True)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self.port).start()
            return runner

        def run() -> None:
            runner = loop.run_until_complete(start())
            up.set()
            loop.run_forever()
            loop.run_until_complete(runner.cleanup())
            loop.close()

        thread = threading.Thread(target=run)
        thread.start()
        assert up.wait(HUNG_SECONDS)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.from_file(str(self.model / "tokenizer.json"))

    def _app(self) -> web.Application:
        app = web.Application()
        info = {"version": "0.5.23", "max_running_requests": SLOTS}
        answers: dict[str, dict[str, Any]] = {
            "/ping": {},
            "/health": {},
            "/server_info": info | {"max_req_input_len": LONGEST_INPUT},
        }
        for path, answer in answers.items():
            app.router.add_get(path, _answering(answer))
        app.router.add_get("/model_info", self._model)
        for path in ("/pause_generation", "/continue_generation"):
            app.router.add_post(path, _answering({}))
        app.router.add_post("/update_weights_from_disk", self._load)
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/parse_function_call", self._parse)
        return app

    async def _model(self, _: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.label})

    async def _load(self, request: web.Request) -> web.Response:
        self.label = (await request.json())["weight_version"]
        return web.json_response({"success": True})

    async def _generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        members = body["sampling_params"]["n"]
        turn = body["input_ids"].count(self._tokenizer.token_to_id("<|assistant|>"))
        self.asked += [turn] * members
        if turn == self.held_turn:
            await asyncio.Event().wait()  # until whoever asked is gone
        made = [self._response(turn) for _ in range(members)]
        return web.json_response(made if members > 1 else made[0])

    def _response(self, turn: int) -> dict[str, Any]:
        call = {"name": "remember", "arguments": {"text": str(turn)}}
        text = "2" if turn == self.turns else f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
        ids = [*self._tokenizer.encode(text).ids, self._tokenizer.token_to_id(END)]
        draws = time.monotonic_ns()  # no two responses have the same log-probabilities
        logprobs = [-((draws + index) % 997 + 1) / 1000 for index in range(len(ids))]
        return {
            "output_ids": ids,
            "meta_info": {
                "finish_reason": {"type": "stop"},
                "output_token_logprobs": [
                    [logprob, token, None] for logprob, token in zip(logprobs, ids, strict=True)
                ],
                "weight_versions": [{"version": self.label, "start": 0, "end": len(ids)}],
            },
        }

    async def _parse(self, request: web.Request) -> web.Response:
        text = (await request.json())["text"]
        call = json.loads(text.split("<tool_call>")[1].split("</tool_call>")[0])
        parameters = json.dumps(call["arguments"])
        calls = [{"name": call["name"], "parameters": parameters, "tool_index": 0}]
        return web.json_response({"normal_text": "", "calls": calls})


def _answering(answer: dict[str, Any]) -> Any:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response(answer)

    return handler
