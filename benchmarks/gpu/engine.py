"""A real SGLang on a GPU: log-probabilities, pauses, memory given back, adapters, FP8, speculation.

Each case has an engine of its own, which gets the operator's arguments and those after ``--``, e.g.
``--cases FP8 -- --attention-backend triton``. It and the trainer share one GPU. All requests go
through the agent's own client. Policies lie in memory (`/dev/shm`), as an agent has them before a
pause. The last line but one is a row for the page of benchmarks.
"""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu.engine_process import (
    POLL_SECONDS,
    PROJECTIONS,
    RANK,
    Files,
    Server,
    ready,
    server,
    write,
)
from benchmarks.gpu.engine_scores import FIRST, GAP, PROMPT, SIDE, score, scored
from benchmarks.gpu.trainer import MESSAGE, MISSING, gpu_name, row, shown
from benchmarks.support.result import Result, chosen_cases
from rl_contracts.capacity.training import GIB
from rl_contracts.spec.engine import Engine as Options
from rl_contracts.spec.storage import Pause
from rl_sampler.engine.client import Engine, open_session
from rl_sampler.engine.protocol import GenerateRequest, Generation

MEMBERS, TOKENS = 64, 256
UPDATES = 5
LOAD_SECONDS = 120.0
CONTEXT_GIB = 2.0
"""Most that an engine may hold when it gave its memory back: contexts and what CUDA keeps."""
SECONDS_PER_GB = 1.0


Measure = Callable[[Engine, Files, Result], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """An engine's options, and what is measured with it."""

    measure: Measure
    options: Options = field(default_factory=Options)
    arguments: tuple[str, ...] = ()
    """Others that the operator adds."""


def main() -> int:
    """Measure and print; 2 without a GPU."""
    if sys.argv[1:2] == [SIDE]:
        print(json.dumps(score(Path(sys.argv[2]), sys.argv[3])))
        return 0
    given, arguments = sys.argv, []
    if "--" in given:
        sys.argv, arguments = given[: given.index("--")], given[given.index("--") + 1 :]
    names, _ = chosen_cases(__doc__, cases())
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the end of a log is shown then, too
    name = gpu_name()
    if name is None:
        print(MESSAGE.replace("gpu.trainer", "gpu.engine"), file=sys.stderr)
        return MISSING
    result = Result("gpu.engine", machine=name)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        files = Files(Path(folder))
        write(files)
        for each in names:
            case = cases()[each]
            with server(files, case.options, arguments, first=case.arguments) as running:
                asyncio.run(measured(each, case.measure, running, files, result))
    print(row(result))
    result.print()
    return 0


def cases() -> dict[str, Case]:
    """All that is measured, by name."""
    lora = ("--enable-lora", "--max-lora-rank", str(RANK), "--lora-target-modules", *PROJECTIONS)
    return {
        "bfloat16": Case(whole_weights, arguments=("--enable-memory-saver",)),
        "adapters": Case(with_adapters, arguments=lora),
        "FP8": Case(quantized, Options.model_validate({"weightPrecision": "FP8"})),
        "n-grams": Case(speculating, Options.model_validate({"speculation": {}})),
    }


async def measured(
    name: str, measure: Measure, running: Server, files: Files, result: Result
) -> None:
    """Wait for the engine, and measure."""
    began = time.perf_counter()
    async with open_session() as session:
        engine = Engine(f"http://127.0.0.1:{running.port}", session=session, run="run")
        await ready(engine, running.process)
        result.figures[f"start_s, {name}"] = round(time.perf_counter() - began, 1)
        shown(result, f"start_s, {name}")
        await measure(engine, files, result)


async def whole_weights(engine: Engine, files: Files, result: Result) -> None:
    """Speed, gap, pauses, and turns with a trainer on the same GPU."""
    generations = await speed(engine, "bfloat16", result)
    for precision in ("BF16", "FP32"):
        gap = scored(files, generations, "bfloat16", result, precision=precision)
        result.at_most(f"mean log-prob gap, trainer in {precision}", gap, GAP)
    for mode in ("Retract", "InPlace"):
        seconds = await pauses(engine, files, mode, "bfloat16", result)
        result.at_most(f"seconds of a pause per GB, {mode}", seconds, SECONDS_PER_GB)
    await turns(engine, files, result)


async def quantized(engine: Engine, files: Files, result: Result) -> None:
    """Speed, gap and the correction's weights, and pauses, with weights in FP8."""
    generations = await speed(engine, "FP8", result)
    scored(files, generations, "FP8", result)
    await pauses(engine, files, "Retract", "FP8", result)


async def speculating(engine: Engine, files: Files, result: Result) -> None:
    """Speed and gap: what is sampled must be the policy's all the same.

    A model of random weights repeats nothing, so that hardly a guess is right.
    """
    generations = await speed(engine, "n-grams", result)
    gap = scored(files, generations, "n-grams", result)
    result.at_most("mean log-prob gap, n-grams", gap, GAP)


async def speed(engine: Engine, name: str, result: Result) -> list[Generation]:
    """Tokens per second of ``MEMBERS`` responses, which are returned."""
    await sampled(engine, members=4)
    began = time.perf_counter()
    generations = await sampled(engine)
    seconds = time.perf_counter() - began
    result.figures[f"tokens_per_s, {name}"] = round(MEMBERS * TOKENS / seconds)
    shown(result, f"tokens_per_s, {name}")
    return generations


async def sampled(
    engine: Engine, *, members: int = MEMBERS, greedy: bool = False, adapter: str = ""
) -> list[Generation]:
    """Responses of so many members."""
    request = GenerateRequest(
        prompt=list(range(FIRST, FIRST + PROMPT)),
        members=members,
        temperature=1.0,
        max_new_tokens=TOKENS,
        stop_tokens=(),
        greedy=greedy,
        adapter=adapter,
    )
    return await engine.generate(request)


async def pauses(engine: Engine, files: Files, mode: Pause, name: str, result: Result) -> float:
    """Seconds per GB from a pause to its end, with weights in memory and requests running."""
    running = [asyncio.create_task(keep_sampling(engine)) for _ in range(4)]
    taken = []
    try:
        for number in range(UPDATES):
            await asyncio.sleep(POLL_SECONDS)
            began = time.perf_counter()
            await engine.pause(mode)
            await engine.load(
                files.policies[(number + 1) % 2],
                label=f"{mode}-{number}",
                seconds=LOAD_SECONDS,
                empty_cache=mode == "Retract",
            )
            await engine.resume()
            taken.append(time.perf_counter() - began)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    figures = {"median": statistics.median(taken), "max": max(taken)}
    per_gb = figures["median"] / files.gigabytes
    figure = f"pause_s, {name}, {mode}"
    result.figures[figure] = {
        **{what: round(value, 3) for what, value in figures.items()},
        "per_gb": round(per_gb, 3),
    }
    shown(result, figure)
    return per_gb


async def keep_sampling(engine: Engine) -> None:
    """Send requests until cancelled."""
    while True:
        await sampled(engine, members=4)


async def turns(engine: Engine, files: Files, result: Result) -> None:
    """Give the memory back and take it again; the weights answer as before."""
    await engine.load(files.policies[0], label="before", seconds=LOAD_SECONDS)
    before, held = await sampled(engine, members=1, greedy=True), used_gib()
    figures: dict[str, float] = {"held_gib": held}
    await engine.pause("Retract")
    figures["release_s"] = await timed(engine.release_memory(seconds=LOAD_SECONDS))
    figures["left_gib"] = used_gib()
    figures["resume_s"] = await timed(engine.resume_memory(seconds=LOAD_SECONDS))
    figures["load_s"] = await timed(
        engine.load(files.policies[0], label="after", seconds=LOAD_SECONDS)
    )
    await engine.resume()
    after = await sampled(engine, members=1, greedy=True)
    differing = sum(
        earlier[0] != later[0]
        for earlier, later in zip(
            before[0].meta_info.output_token_logprobs,
            after[0].meta_info.output_token_logprobs,
            strict=True,
        )
    )
    result.figures["turn"] = figures | {"changed_logprobs": differing}
    shown(result, "turn")
    result.at_most(
        "GiB that an engine holds during the trainer's turn", figures["left_gib"], CONTEXT_GIB
    )
    result.at_most("log-probabilities that a turn changed", differing, 0)


async def timed(waited: Awaitable[None]) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    await waited
    return round(time.perf_counter() - began, 3)


def used_gib() -> float:
    """Of the GPU, by all processes."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return round(int(ran.stdout.split()[0]) * (1 << 20) / GIB, 2)


async def with_adapters(engine: Engine, files: Files, result: Result) -> None:
    """Seconds to load an adapter beside running requests; it changes what is sampled."""
    running = asyncio.create_task(keep_sampling(engine))
    taken = []
    for number in range(UPDATES):
        label = f"v{number}"
        began = time.perf_counter()
        await engine.load_adapter(files.adapter, label=label, seconds=LOAD_SECONDS)
        taken.append(time.perf_counter() - began)
        await sampled(engine, members=1, adapter=label)
        await engine.unload_adapter(label)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    size = (files.adapter / "adapter_model.safetensors").stat().st_size
    result.figures["adapter"] = {
        "median_s": round(statistics.median(taken), 3),
        "mb": round(size / 1e6, 1),
    }
    shown(result, "adapter")
    result.at_most("seconds to load an adapter", statistics.median(taken), 1.0)


if __name__ == "__main__":
    sys.exit(main())
