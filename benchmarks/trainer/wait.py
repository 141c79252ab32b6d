"""How long a trainer waits for rollouts, and what asynchrony gains where tools are slow.

Real stores, a real trainer in a process of its own, and a stream of made-up rollouts in place of
samplers. First the trainer's demand is measured with rollouts that are always there; then groups
come at 1.2 times that rate, evenly. Then each group takes 2 s, as with a slow tool, as many side by
side as the trainer hands out: once synchronously (``maxStaleness: 0``), once with a staleness of 4.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.support.result import Result, is_quick
from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.rollout import Rollout, VersionSpan
from rl_contracts.documents.task import Queue, Task
from rl_contracts.stores.connect import Stores
from tests.contract.rl_trainer.sampling import LEASE_SECONDS, TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.models.tiny_model import VOCABULARY, save_tiny
from tests.samples.documents import a_rollout
from tests.servers import MinioServer, StoreServer, running_minio, running_store, settings_of

PROMPT, GENERATED = 8, 120
GROUP, GROUPS_PER_STEP = 4, 8
FASTER = 1.2
TOOL_SECONDS, STALENESS = 2.0, 4
WARM_STEPS = 2
"""The first ones fill queues and caches; they are left out."""

Servers = tuple[StoreServer, MinioServer]


@dataclass
class Stream(TestSampler):
    """Answers tasks with made-up rollouts, ``latency`` after their claim, ``interval`` apart."""

    latency: float = 0.0
    interval: float = 0.0
    late: float = 0.0
    """Seconds, most, by which an answer came after its time: the stream's own fault."""
    _begun: deque[tuple[float, Task]] = field(default_factory=deque)
    _next: float = 0.0

    def __post_init__(self) -> None:
        self._generator = torch.Generator().manual_seed(self.seed)

    def _turn(self) -> bool:
        run = self.stores.runs.get(self.run)
        if run is None or run.policy is None:
            return False
        self.held, now = run.policy, time.monotonic()
        task = self.stores.tasks.claim(
            self.run, queue=Queue.TRAIN, owner=self.name, lease_seconds=LEASE_SECONDS
        )
        if task is not None:
            self._begun.append((now + self.latency, task))
        if not self._begun:
            return False
        due = max(self._begun[0][0], self._next)
        if now < due:
            return task is not None
        self.late = max(self.late, now - due)
        self._next = due + self.interval  # by the schedule: a late answer makes no later one late
        self._answer(self._begun.popleft()[1])
        return True

    def _rollouts(self, task: Task) -> list[Rollout]:
        assert self.held is not None
        start, end = PROMPT, PROMPT + GENERATED
        span = VersionSpan(version=self.held.version, step=self.held.step, start=start, end=end)
        shape = (task.group_size, end)
        tokens = torch.randint(VOCABULARY, shape, generator=self._generator).tolist()
        return [
            a_rollout(
                task,
                member,
                sampler=self.name,
                tokens=pack_int32(row),
                spans=[span],
                mask=bytes(start) + bytes([1] * GENERATED),
                reward=float(member % 2),
                logprobs=pack_float32([0.0] * start + [-2.8] * GENERATED),
            )
            for member, row in enumerate(tokens)
        ]


def main() -> None:
    """Measure and print."""
    quick = is_quick(__doc__)
    result, steps = Result("trainer.wait"), 8 if quick else 25
    with tempfile.TemporaryDirectory() as name, running(Path(name)) as servers:
        demand, _ = measure(Path(name) / "demand", servers, steps=steps, staleness=STALENESS)
        busy = seconds_per_step(demand) - mean(demand, "wait_seconds")
        paced, late = measure(
            Path(name) / "paced",
            servers,
            steps=steps,
            staleness=STALENESS,
            interval=busy / GROUPS_PER_STEP / FASTER,
        )
        waits(result, paced, busy=busy)
        result.figures["an_answer_of_the_stream_was_late_by_at_most_seconds"] = round(late, 3)
        asynchrony(result, Path(name), servers, steps=steps)
    result.print()


def waits(result: Result, paced: list[dict[str, Any]], *, busy: float) -> None:
    """Hold the share of waiting in wall time against its bar."""
    result.figures["seconds_per_step_with_rollouts_always_there"] = round(busy, 3)
    result.figures["seconds_per_step_at_1.2"] = round(seconds_per_step(paced), 3)
    waited = mean(paced, "wait_seconds")
    share = waited / seconds_per_step(paced)
    # Other work on the machine between the two runs shows here: then the stream was no 1.2 times.
    result.figures["seconds_of_work_per_step_before_and_in_that_run"] = [
        round(busy, 3),
        round(seconds_per_step(paced) - waited, 3),
    ]
    result.at_most("share of waiting at 1.2 times the demand", share, 0.05)


def asynchrony(result: Result, folder: Path, servers: Servers, *, steps: int) -> None:
    """Hold steps per second at a slow tool against those of a synchronous run."""
    took = {}
    for name, staleness in (("synchronous", 0), ("asynchronous", STALENESS)):
        seconds, _ = measure(
            folder / name, servers, steps=steps, staleness=staleness, latency=TOOL_SECONDS
        )
        took[name] = seconds_per_step(seconds)
    result.figures["seconds_per_step_with_a_tool_of_2_s"] = {
        name: round(seconds, 3) for name, seconds in took.items()
    }
    result.at_least("asynchronous to synchronous", took["synchronous"] / took["asynchronous"], 2.0)


def measure(
    folder: Path,
    servers: Servers,
    *,
    steps: int,
    staleness: int,
    latency: float = 0.0,
    interval: float = 0.0,
) -> tuple[list[dict[str, Any]], float]:
    """One run: metrics of its steps, and by how much an answer of the stream was late at most."""
    folder.mkdir()
    settings = settings_of(*servers)
    with closing(Stores.connect(settings)) as stores:
        stores.mongo.ensure_indexes()
        stores.objects.make_bucket()
        world = World.make(
            folder,
            stores,
            settings,
            steps=steps,
            promptsPerStep=GROUPS_PER_STEP,
            maxTokensPerMicrobatch=2048,
            checkpoint={"everySteps": 100_000},
        )
        write_model(world)
        values = world.spec.model_dump(by_alias=True, exclude_none=True)
        values["algorithm"] = {"groupSize": GROUP, "offPolicy": {"maxStaleness": staleness}}
        world.spec = type(world.spec).model_validate(values)
        world.write_mounts()
        stream = Stream(stores, RUN, latency=latency, interval=interval)
        with sampling(stream):
            code = world.process().wait(timeout=600)
        assert code == 0, (folder / "trainer.log").read_text()[-2000:]
        lines = world.newest("metrics.jsonl").splitlines()
        return [json.loads(line) for line in lines], stream.late


def write_model(world: World) -> None:
    """A larger model instead of the tiny one, so that a step takes a while."""
    objects = world.stores.objects
    made = save_tiny(
        world.folder / "larger",
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        head_dim=32,
        max_position_embeddings=256,
    )
    for path in made.iterdir():
        objects.put_file(f"{objects.prefix}model/{path.name}", path)


def seconds_per_step(metrics: list[dict[str, Any]]) -> float:
    """Wall time between commits, on average, without the first steps."""
    return float(metrics[-1]["time"] - metrics[WARM_STEPS]["time"]) / (
        len(metrics) - 1 - WARM_STEPS
    )


def mean(metrics: list[dict[str, Any]], name: str) -> float:
    """Of a field, over the same steps."""
    kept = metrics[WARM_STEPS + 1 :]
    return float(sum(step[name] for step in kept)) / len(kept)


@contextmanager
def running(folder: Path) -> Iterator[Servers]:
    """A document store and a bucket."""
    for name in ("store", "minio"):
        (folder / name).mkdir()
    with running_store(folder / "store") as mongo, running_minio(folder / "minio") as minio:
        yield mongo, minio


if __name__ == "__main__":
    main()
