"""What the gateway costs: tokens per second through it beside the bare engine's, and memory.

A real SGLang on the CPU with 114 million parameters (with --quick 3 layers of 12) has one core;
the gateway, as a process, and the clients the other. Sixty-four sessions at a time, each with two
turns. The bare side sends the very token ids that the gateway sends for the same conversation, as
many at a time. Sides take turns, who goes first alternates. Whole answers are compared with whole
answers, streams with streams. The memory of an idle session is measured over a thousand sessions of
four turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp

from benchmarks.support.result import Result, chosen_cases
from benchmarks.support.samplers import (
    cpu_seconds,
    on_core,
    resident_mb,
    scratch,
    start_engine,
    write_large,
)
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.agent.agents import Sampling
from rl_sampler.agents.chat import Chat, Chats
from rl_sampler.agents.policy import Policy, Sampled
from rl_sampler.agents.prompt import load_prompts
from rl_sampler.engine.client import Engine, open_session
from rl_sampler.engine.counters import Counters
from rl_sampler.engine.protocol import GenerateRequest, Generation
from rl_sampler.engine.serving import Serving
from rl_sampler.engine.slots import Slots
from rl_sampler.gateway import openai_chat
from rl_sampler.gateway.server import serving_gateway
from rl_sampler.gateway.session import Session
from rl_sampler.gateway.sessions import Sessions
from rl_sampler.tasks.claims import Claim
from tests.contract.rl_sampler.engine_server import EngineServer
from tests.contract.rl_sampler.episodes.several_turns import TEMPLATE
from tests.contract.rl_sampler.tiny_model import ADDED, END, write_model
from tests.samples.documents import a_task
from tests.servers import free_port

SESSIONS = 64
IDLE = 1000
IDLE_TURNS, IDLE_TOKENS = 4, 256
POINTER = PolicyPointer(version=1, epoch=1, step=1, prefix="p/", manifest_sha256="0")
QUESTION: list[dict[str, Any]] = [{"role": "user", "content": "What is 17 + 25? Think first."}]
NEXT = {"role": "user", "content": "Are you sure?"}
END_ID = 256 + ADDED.index(END)


def main() -> None:
    """Measure and print."""
    if len(sys.argv) > 1 and sys.argv[1] == "--serve":
        asyncio.run(serve(sys.argv[2:]))
        return
    cases, quick = chosen_cases(__doc__, ("whole", "streams", "memory"))
    result = Result("sampler.gateway")
    size = QUICK if quick else Size()
    if {"whole", "streams"} & set(cases):
        speed(result, size, [case for case in cases if case != "memory"])
    if "memory" in cases:
        asyncio.run(memory(result))
    result.print()


@dataclass(frozen=True)
class Size:
    """How much of it."""

    layers: int = 12
    rounds: int = 4
    tokens: int = 64
    turns: int = 2


QUICK = Size(layers=3, rounds=9, tokens=32)


@dataclass
class Side:
    """One side's rounds."""

    speeds: list[float] = field(default_factory=list)
    """Tokens per second."""
    cores: list[float] = field(default_factory=list)
    """That the gateway took."""


def speed(result: Result, size: Size, cases: list[str]) -> None:
    """Tokens per second of both sides."""
    with scratch() as folder, ExitStack() as stack:
        write_large(folder / "model", dtype="float32", layers=size.layers)
        with_roles(folder / "model")
        with on_core(0):
            engine = start_engine(folder, folder / "model", "float32", 0, stack)
        engine.wait_ready()
        with on_core(1):
            served = stack.enter_context(serving(engine, folder / "model", size))
            for case in cases:
                measure(result, size, case, engine=engine, served=served, model=folder / "model")


def with_roles(model: Path) -> Path:
    """Give a model a chat template that knows all roles."""
    path = model / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"chat_template": TEMPLATE}))
    return model


def measure(
    result: Result, size: Size, case: str, *, engine: EngineServer, served: Served, model: Path
) -> None:
    """One case, in turns of both sides."""
    chat = Chat(load_prompts(model), [])
    streams, bare, ours = case == "streams", Side(), Side()
    sides: list[tuple[Side, Callable[[], Any]]] = [
        (bare, partial(bare_round, engine.url, chat, size, streams=streams)),
        (ours, partial(our_round, served, size, streams=streams)),
    ]
    for _, work in sides:  # both warm
        asyncio.run(work())
    for number in range(size.rounds):
        for side, work in sides if number % 2 else reversed(sides):
            before, started = cpu_seconds([served.pid]), time.perf_counter()
            tokens = asyncio.run(work())
            seconds = time.perf_counter() - started
            side.speeds.append(tokens / seconds)
            side.cores.append((cpu_seconds([served.pid]) - before) / seconds)
        print(f"{case}: bare {bare.speeds[-1]:.0f}, gateway {ours.speeds[-1]:.0f}", flush=True)
    ratios = [mine / theirs for mine, theirs in zip(ours.speeds, bare.speeds, strict=True)]
    for name, side in (("bare", bare), ("gateway", ours)):
        result.figures[f"{case}_{name}_tokens_per_second"] = round(
            statistics.median(side.speeds), 1
        )
    result.figures[f"{case}_ratios"] = [round(ratio, 3) for ratio in ratios]
    result.figures[f"{case}_cores_of_the_gateway"] = round(statistics.median(ours.cores), 3)
    result.at_least(
        f"{case}: tokens/s through the gateway to the bare engine",
        statistics.median(ratios),
        0.95,
    )


@dataclass(frozen=True)
class Served:
    """The gateway's process."""

    pid: int
    url: str
    keys: list[str]


@contextmanager
def serving(engine: EngineServer, model: Path, size: Size) -> Iterator[Served]:
    """A gateway with sessions that never end."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "benchmarks.sampler.gateway",
        "--serve",
        engine.url,
        str(model),
    ]
    command += [str(port), str(size.tokens)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        keys = json.loads(process.stdout.readline())
        yield Served(process.pid, f"http://127.0.0.1:{port}/v1", keys)
    finally:
        process.kill()
        process.wait()


async def serve(arguments: list[str]) -> None:
    """Serve the sessions until killed."""
    parser = argparse.ArgumentParser()
    for name, kind in (("engine", str), ("model", Path), ("port", int), ("tokens", int)):
        parser.add_argument(name, type=kind)
    given = parser.parse_args(arguments)
    prompts, sessions, slots = load_prompts(given.model), Sessions(), Slots()
    async with open_session() as http:
        engine = Engine(given.engine, session=http)
        info = await engine.server_info()
        policy = Policy(
            claim=Claim(task=a_task(), renewed=0.0),
            sampling=Sampling(max_tokens_per_turn=given.tokens),
            stop_tokens=prompts.stop_tokens,
            engine=engine,
            watch=cast(Any, SimpleNamespace(check_soon=lambda: None)),
            serving=Serving(engine=info, policy=POINTER, known={"base": POINTER}),
            slots=slots,
            counters=Counters(),
        )
        keys = []
        for _ in range(SESSIONS):
            session = a_session(policy, Chats(prompts))
            sessions.open(session)
            keys.append(session.key)
        async with serving_gateway(sessions, port=given.port):
            print(json.dumps(keys), flush=True)
            await asyncio.Event().wait()


def a_session(policy: Policy, chats: Chats) -> Session:
    """A session without a bound that matters here."""
    return Session(
        policy=policy, chats=chats, form="Hermes", most_responses=1_000_000, streams=True
    )


async def our_round(served: Served, size: Size, *, streams: bool) -> int:
    """A conversation of each session, all at once; returns the sampled tokens."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        spoken = [converse(http, served.url, key, size, streams=streams) for key in served.keys]
        return sum(await asyncio.gather(*spoken))


async def converse(
    http: aiohttp.ClientSession, url: str, key: str, size: Size, *, streams: bool
) -> int:
    """One conversation through the gateway; returns its sampled tokens."""
    messages, tokens = list(QUESTION), 0
    headers = {"Authorization": f"Bearer {key}"}
    for _ in range(size.turns):
        body = {"model": "policy", "messages": messages, "stream": streams}
        if streams:
            body["stream_options"] = {"include_usage": True}
        async with http.post(f"{url}/chat/completions", json=body, headers=headers) as answer:
            text, used = await (streamed(answer) if streams else whole(answer))
        tokens += used
        messages = [*messages, {"role": "assistant", "content": text}, NEXT]
    return tokens


async def whole(answer: aiohttp.ClientResponse) -> tuple[str, int]:
    """Text and tokens of a whole answer."""
    body = await answer.json()
    return body["choices"][0]["message"]["content"], body["usage"]["completion_tokens"]


async def streamed(answer: aiohttp.ClientResponse) -> tuple[str, int]:
    """Text and tokens of a stream."""
    text, used = "", 0
    async for line in answer.content:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
            used = event["usage"]["completion_tokens"] if "usage" in event else used
    return text, used


async def bare_round(url: str, chat: Chat, size: Size, *, streams: bool) -> int:
    """The same token ids, sent to the engine; returns the sampled tokens."""

    async def ignore(number: int, tokens: list[int]) -> None: ...

    async def run_session() -> int:
        context, tokens = chat.whole(QUESTION), 0
        for _ in range(size.turns):
            request = GenerateRequest(
                prompt=context,
                members=1,
                temperature=1.0,
                max_new_tokens=size.tokens,
                stop_tokens=(END_ID,),
            )
            (made,) = await engine.generate(request, progress=ignore if streams else None)
            tokens += len(made.output_ids)
            between = chat.between([NEXT], response=made.output_ids)
            context = [*context, *made.output_ids, *between]
        return tokens

    async with open_session() as http:
        engine = Engine(url, session=http)
        return sum(await asyncio.gather(*(run_session() for _ in range(SESSIONS))))


class Parrot:
    """In the place of a policy: the same tokens again and again, and none of them are kept."""

    sampling = Sampling()
    serving = SimpleNamespace(known={"1": POINTER})
    claim, member = Claim(task=a_task(), renewed=0.0), 0

    def room(self, context: int) -> int:
        """Always enough."""
        return 1_000_000

    async def sample(self, context: list[int], **options: Any) -> Sampled:
        """So many letters, which differ from session to session."""
        tokens = [97 + (len(context) + at) % 26 for at in range(IDLE_TOKENS - 1)] + [END_ID]
        made = Generation.model_validate(
            {
                "output_ids": tokens,
                "meta_info": {
                    "finish_reason": {"type": "stop", "matched": END_ID},
                    "output_token_logprobs": [
                        [-0.1 - at / 1000, t, None] for at, t in enumerate(tokens)
                    ],
                    "weight_versions": [{"version": "1", "start": 0, "end": len(tokens)}],
                },
            }
        )
        return Sampled(
            generations=[made], queue_seconds=0.0, generate_seconds=0.0, step=POINTER.step
        )


async def memory(result: Result) -> None:
    """Kilobytes that an idle session holds: just opened, and after a conversation."""
    with scratch() as folder:
        write_model(folder)
        chats, policy, sessions = (
            Chats(load_prompts(with_roles(folder))),
            cast(Policy, Parrot()),
            Sessions(),
        )
    await talk(a_session(policy, chats))  # what is loaded once
    held = [resident_mb(os.getpid())]
    opened = [a_session(policy, chats) for _ in range(IDLE)]
    for session in opened:
        sessions.open(session)
    held.append(resident_mb(os.getpid()))
    for session in opened:
        await talk(session)
    held.append(resident_mb(os.getpid()))
    kilobytes = [(after - held[0]) * 1024 / IDLE for after in held[1:]]
    result.figures["kilobytes_of_an_opened_session"] = round(kilobytes[0], 1)
    what = f"kilobytes of an idle session of {IDLE_TURNS} turns of {IDLE_TOKENS} tokens"
    result.at_most(what, kilobytes[1], 200)


async def talk(session: Session) -> None:
    """A conversation of several turns."""
    messages = list(QUESTION)
    for _ in range(IDLE_TURNS):
        asked = openai_chat.parse({"model": "policy", "messages": messages})
        reply = await session.answer(session.place(asked))
        text = reply.choices[0].text
        messages = [*messages, {"role": "assistant", "content": text}, NEXT]


if __name__ == "__main__":
    main()
