"""From the end of a step to every sampler serving the policy: ``broadcast.latency`` with engines.

A real trainer's publisher, MinIO, store, and samplers: an agent and an SGLang on the CPU each,
with 114 million parameters in bfloat16 (228 MB; with --quick 3 layers of 12), as a delta of 1.5 %
changed values. Timed from the snapshot's hand-over until each agent says that its engine serves
the version; agents look for one every 0.3 s. The case 1GB has 503 million parameters, one such
sampler, and three agents' stagers without engines, told of a version as soon as it is there.
Encode and upload are the publisher's; making (download, copy, apply), verifying and the pause
(which is mostly loading) are each agent's own figures; stage is all of one without an engine.
"""

from __future__ import annotations

import contextlib
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.broadcast.latency import Split
from benchmarks.broadcast.update_pause import metric
from benchmarks.support.bucket import stepped
from benchmarks.support.result import Result, chosen_cases
from benchmarks.support.samplers import Publisher, World, running_world, scratch, write_large
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.storage import Delta
from rl_contracts.stores.objects import Objects
from tests.contract.policy_broadcast.world import Subscriber

BUILT = re.compile(r"version (\d+) was built in ([\d.]+) s and verified in ([\d.]+) s")
SECTIONS = {
    "training": {"steps": 1000, "precision": "BF16"},
    "weightSync": {"timeoutSeconds": 600},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Who receives what how often."""

    samplers: int
    agents: int = 0
    """Without engines."""
    layers: int = 12
    rounds: int = 6


CASES = {
    "1": Case(samplers=1),
    "2": Case(samplers=2),
    "4": Case(samplers=4),
    "1GB": Case(samplers=1, agents=3, layers=53, rounds=4),
}


def main() -> None:
    """Measure and print."""
    names, quick = chosen_cases(__doc__, CASES)
    result = Result("broadcast.serving")
    for name in names:
        case = CASES[name]
        if quick:
            case = Case(samplers=case.samplers, agents=case.agents, layers=3, rounds=2)
        result.figures[name] = serving(case)
        print(f"{name}: {result.figures[name]}", flush=True)
    result.print()


@dataclass
class Agents:
    """Stagers without engines, each with a folder of its own."""

    homes: list[Subscriber]
    pool: ThreadPoolExecutor
    held: dict[int, Path] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    """Of each stager and version."""

    def begin(self, pointer: PolicyPointer) -> list[Future[None]]:
        """All of them stage a version."""
        return [self.pool.submit(self._stage, index, pointer) for index in range(len(self.homes))]

    def _stage(self, number: int, pointer: PolicyPointer) -> None:
        started = time.perf_counter()
        keep = [self.held[number]] if number in self.held else []
        self.held[number] = self.homes[number].stage(pointer, keep=keep).folder
        self.seconds.append(time.perf_counter() - started)


@contextlib.contextmanager
def running_agents(
    objects: Objects, folder: Path, tensors: dict[str, Tensor], *, count: int
) -> Iterator[Agents]:
    """Make so many; none where there are to be none."""
    with ThreadPoolExecutor(max(1, count)) as pool:
        homes = [
            Subscriber.make(folder / f"agent-{number}", objects, tensors) for number in range(count)
        ]
        yield Agents(homes, pool)


def serving(case: Case) -> dict[str, Any]:
    """Seconds until the last sampler serves and the last agent has it, and their split."""
    whole: list[float] = []
    pauses: list[float] = []
    split = Split()
    with scratch() as folder:
        tensors = write_large(folder / "model", dtype="bfloat16", layers=case.layers)
        size = sum(tensor.nbytes for tensor in tensors.values())
        with (
            running_world(
                folder,
                folder / "model",
                dtype="bfloat16",
                samplers=case.samplers,
                sections=SECTIONS,
            ) as world,
            running_agents(world.stores.objects, folder, tensors, count=case.agents) as agents,
        ):
            publisher = Publisher(world.script, Delta(anchor_every=1000))
            publish(publisher, world, agents, tensors)  # in full: an epoch's first always is
            agents.seconds.clear()
            for number in range(case.rounds):
                tensors = stepped(tensors, number)
                with split.measuring():
                    whole.append(publish(publisher, world, agents, tensors))
                pauses += [
                    metric(pod.get("/metrics")[1], "update_pause_last_seconds")
                    for pod in world.pods
                ]
            made = steps_of(world, after=1)
    return {
        "mb": round(size / 1e6),
        **median_and_maximum("seconds", whole),
        **{name: round(statistics.median(seconds), 3) for name, seconds in split.times.items()},
        **median_and_maximum("make_seconds", [make for make, _ in made]),
        **median_and_maximum("verify_agent_seconds", [verify for _, verify in made]),
        **median_and_maximum("pause_seconds", pauses),
        **(median_and_maximum("stage_seconds", agents.seconds) if agents.seconds else {}),
    }


def publish(
    publisher: Publisher, world: World, agents: Agents, tensors: dict[str, Tensor]
) -> float:
    """Seconds from the hand-over of a version until everybody has it."""
    started = time.perf_counter()
    pointer = publisher.publish(tensors)
    staging = agents.begin(pointer)
    for pod in world.pods:
        pod.wait_version(pointer.version)
    for future in staging:
        future.result()
    return time.perf_counter() - started


def steps_of(world: World, *, after: int) -> list[tuple[float, float]]:
    """Seconds that agents took to make and to verify each version after this one."""
    made = [match for pod in world.pods for match in BUILT.findall(pod.log())]
    return [(float(make), float(verify)) for version, make, verify in made if int(version) > after]


def median_and_maximum(name: str, values: Sequence[float]) -> dict[str, float]:
    """Median and maximum."""
    return {
        f"{name}_median": round(statistics.median(values), 3),
        f"{name}_max": round(max(values), 3),
    }


if __name__ == "__main__":
    main()
