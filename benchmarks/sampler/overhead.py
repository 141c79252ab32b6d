"""What the agent costs: tokens per second through it beside the bare engine's.

A real SGLang on the CPU with 114 million parameters (with --quick 3 layers of 12) has one core;
stores, agent and the bare client the other. Thirty-two episodes at a time, in groups of eight. The
bare side is a closed loop of the very requests that the agent sends, as many at a time, and
nothing else: no store, no scoring. Both do the same number of groups in turns, who goes first
alternates. The agent's memory is told over ten thousand short episodes of a tiny model (with
--quick two thousand). `--cases` chooses one of the two parts.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.support.result import Result, chosen_cases
from benchmarks.support.samplers import (
    Publisher,
    World,
    cpu_seconds,
    on_core,
    resident_mb,
    running_world,
    scratch,
    write_large,
)
from rl_contracts.documents.arrays import unpack_int32
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.spec.storage import Delta
from rl_sampler.engine.client import Engine, open_session
from rl_sampler.engine.protocol import GenerateRequest
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.contract.rl_sampler.tiny_model import ADDED, END, write_model
from tests.waiting import until

GROUP, AT_ONCE = 8, 4
CONTENT = "17+25="
EPISODES = 10_000


def main() -> None:
    """Measure and print."""
    cases, quick = chosen_cases(__doc__, ("speed", "memory"))
    result = Result("sampler.overhead")
    if "speed" in cases:
        overhead(result, QUICK if quick else Size())
    if "memory" in cases:
        memory(result, episodes=2_000 if quick else EPISODES)
    result.print()


def sections(tokens: int) -> dict[str, Any]:
    """Of the job: groups that the engine's slots would not bound."""
    template = {"autoscaling": {"minReplicas": 1}, "maxConcurrentGroups": AT_ONCE}
    return {
        "agent": {"sampling": {"maxTokensPerTurn": tokens, "maxContextTokens": 512}},
        "samplers": [{"name": "main", "template": template}],
    }


@dataclass(frozen=True)
class Size:
    """How much of it."""

    layers: int = 12
    rounds: int = 4
    tokens: int = 64
    groups: int = 4 * AT_ONCE


QUICK = Size(layers=3, rounds=3, tokens=32, groups=AT_ONCE)


@dataclass(frozen=True)
class Run:
    """One side's share of a round."""

    tokens: int
    seconds: float
    engine_cpu: float
    """Seconds of processor."""
    agent_cpu: float = 0.0

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


def overhead(result: Result, size: Size) -> None:
    """Tokens per second of both sides, and the processor time of agent and engine."""
    bare: list[Run] = []
    ours: list[Run] = []
    with scratch() as folder:
        tensors = write_large(folder / "model", dtype="float32", layers=size.layers)
        with running_world(
            folder, folder / "model", dtype="float32", samplers=1, sections=sections(size.tokens)
        ) as world:
            Publisher(world.script, Delta()).publish(tensors)
            world.pods[0].wait_version(1)
            with on_core(1):
                agent_run(world, groups=AT_ONCE)  # both sides warm
                bare_run(world, groups=AT_ONCE, tokens=size.tokens)
                for number in range(size.rounds):
                    steps: list[tuple[list[Run], Callable[..., Run]]] = [
                        (bare, partial(bare_run, tokens=size.tokens)),
                        (ours, agent_run),
                    ]
                    for seconds, run in steps if number % 2 else reversed(steps):
                        seconds.append(run(world, groups=size.groups))
                    print(
                        f"bare {bare[-1]}, agent {ours[-1]}, load {os.getloadavg()[0]:.0f}",
                        flush=True,
                    )
    report(result, bare, ours, episodes=size.rounds * size.groups * GROUP)


def report(result: Result, bare: list[Run], ours: list[Run], *, episodes: int) -> None:
    """Figures and bars of both sides."""
    for name, runs in (("bare", bare), ("agent", ours)):
        tokens = sum(run.tokens for run in runs)
        result.figures[f"{name}_tokens_per_second"] = round(
            statistics.median(run.speed for run in runs), 1
        )
        result.figures[f"{name}_engine_cpu_ms_per_token"] = round(
            1000 * sum(run.engine_cpu for run in runs) / tokens, 3
        )
    result.figures["agent_cpu_ms_per_episode"] = round(
        1000 * sum(our.agent_cpu for our in ours) / episodes, 2
    )
    ratios = [mine.speed / theirs.speed for mine, theirs in zip(ours, bare, strict=True)]
    result.figures["ratios"] = [round(ratio, 3) for ratio in ratios]
    result.at_least(
        "tokens/s through the agent to the bare engine", statistics.median(ratios), 0.95
    )
    busy = statistics.median(our.agent_cpu / our.seconds for our in ours)
    result.at_most("cores that the agent takes", busy, 0.1)


def agent_run(world: World, *, groups: int) -> Run:
    """Insert so many groups, and wait until all are done."""
    script, agent, engine = world.script, [pid_of(world)], world.engines[0].pids()
    before, started = (cpu_seconds(agent), cpu_seconds(engine)), time.perf_counter()
    tasks = script.insert(groups, group_size=GROUP, content=CONTENT)
    wait_done(script, tasks)
    seconds = time.perf_counter() - started
    spent = cpu_seconds(agent) - before[0], cpu_seconds(engine) - before[1]
    tokens = sum(rollout.mask.count(1) for rollout in script.chosen(tasks))
    return Run(tokens, seconds, engine_cpu=spent[1], agent_cpu=spent[0])


def wait_done(script: ScriptedTrainer, tasks: list[str]) -> None:
    """Wait for the last tasks, which are claimed last; polls only these."""
    for some in (tasks[-AT_ONCE:], tasks):
        wanted = partial(are_done, script, some)
        until(wanted, what=f"{len(some)} groups", seconds=1800)


def are_done(script: ScriptedTrainer, tasks: list[str]) -> bool:
    """Whether all of these groups are complete."""
    return set(script.states(tasks).values()) == {TaskState.DONE}


def bare_run(world: World, *, groups: int, tokens: int) -> Run:
    """The same requests in a closed loop: what the agent sent is in any of its rollouts."""
    (task, *_) = world.script.stores.tasks.find(
        world.script.run, queue=Queue.TRAIN, state=TaskState.DONE
    )
    rollout = world.script.chosen([task.id])[0]
    prompt = list(unpack_int32(rollout.tokens)[: rollout.mask.index(1)])
    request = GenerateRequest(
        prompt=prompt,
        members=GROUP,
        temperature=1.0,
        max_new_tokens=tokens,
        stop_tokens=(256 + ADDED.index(END),),
    )
    engine = world.engines[0]
    before, started = cpu_seconds(engine.pids()), time.perf_counter()
    sampled = asyncio.run(closed_loop(engine.url, request, groups=groups))
    seconds = time.perf_counter() - started
    return Run(sampled, seconds, engine_cpu=cpu_seconds(engine.pids()) - before)


async def closed_loop(url: str, request: GenerateRequest, *, groups: int) -> int:
    """As many requests at a time as the agent has groups; returns the tokens that were sampled."""
    left, tokens = iter(range(groups)), 0
    async with open_session() as session:
        engine = Engine(url, session=session)

        async def work() -> None:
            nonlocal tokens
            for _ in left:
                members = await engine.generate(request)
                tokens += sum(len(member.output_ids) for member in members)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return tokens


def memory(result: Result, *, episodes: int) -> None:
    """Megabytes that the agent holds, after a fifth of the episodes and after all of them."""
    held: list[float] = []
    with scratch() as folder:
        write_model(folder / "model")
        with running_world(
            folder, folder / "model", dtype="float32", samplers=1, sections=sections(8)
        ) as world:
            world.script.publish()
            world.pods[0].wait_version(1)
            for _ in range(5):
                with on_core(1):
                    agent_run(world, groups=episodes // GROUP // 5)
                held.append(resident_mb(pid_of(world)))
                print(f"agent holds {held[-1]:.1f} MB", flush=True)
    result.figures["agent_memory_mb"] = [round(megabytes, 1) for megabytes in held]
    result.at_most(f"memory after {episodes} episodes to a fifth of them", held[-1] / held[0], 1.05)


def pid_of(world: World) -> int:
    """The agent's process."""
    (pod,) = world.pods
    assert pod.process is not None
    return pod.process.pid


if __name__ == "__main__":
    main()
