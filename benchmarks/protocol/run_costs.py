"""What the run's own work costs, at two sizes: registry, sweeps, retention, records, deletion."""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import bson

from benchmarks.protocol import command_counts
from benchmarks.protocol.command_counts import CommandCounts
from benchmarks.support.result import Result
from benchmarks.support.samplers import running_stores
from rl_contracts.documents.batch import BatchMember, BatchState
from rl_contracts.documents.evaluation import EvaluationResult, newest
from rl_contracts.documents.run import DurablePointer
from rl_contracts.documents.sampler import SamplerState
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.retention.samplers import forget_ended
from rl_contracts.retention.sweep import GROWTH, Sweeper
from rl_contracts.spec.retention import Bound, Retention
from rl_contracts.stores.connect import Stores
from rl_sampler.policy.relay.peers import StoredRegistry, parents, relay_key
from tests.documents import RUN, a_batch, a_rollout, a_run, a_sampler, a_task

CLAIMS = 8
TASKS, MEMBERS = 8, 4
"""Of a step."""
AT_ONCE = 2000
RUN_BYTES = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one call."""

    commands: int
    bytes: int
    seconds: float
    peak_mb: float

    def shown(self) -> dict[str, float]:
        """For the figures."""
        return {
            "commands": self.commands,
            "kb": round(self.bytes / 1e3, 1),
            "ms": round(1e3 * self.seconds, 1),
            "peak_mb": round(self.peak_mb, 1),
        }


def measure(result: Result, *, quick: bool) -> None:
    """Measure all of it."""
    counts = command_counts.registered()
    samplers = (100, 300) if quick else (100, 1000)
    steps = (50, 100) if quick else (100, 400)
    for size in samplers:
        of_fleet(result, counts, size)
    for size in steps:
        of_length(result, counts, size)
    small, large = (result.figures[f"an agent's look for peers of {size}"] for size in samplers)
    what = f"bytes of an agent's look for peers, {samplers[1]} to {samplers[0]}"
    result.at_most(what, large["kb"] / small["kb"], 1.5)
    # A pass follows when the run has grown by a share of its steps.
    shares = [
        result.figures[f"a pass of retention of {size}"]["kb"] / (GROWTH * size) for size in steps
    ]
    result.figures["kb of retention for each step"] = [round(share, 1) for share in shares]
    what = f"bytes of retention for each step, {steps[1]} to {steps[0]}"
    result.at_most(what, shares[1] / shares[0], 1.5)


def cost(counts: CommandCounts, work: Callable[[], object]) -> Cost:
    """What one call costs."""
    before, started = counts.snapshot(), time.perf_counter()
    tracemalloc.start()
    work()
    seconds, (_, peak) = time.perf_counter() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    after = counts.snapshot()
    commands, size = (
        sum(each[index] for each in after.values()) - sum(each[index] for each in before.values())
        for index in (0, 1)
    )
    return Cost(commands=commands, bytes=size, seconds=seconds, peak_mb=peak / 1e6)


def of_fleet(result: Result, counts: CommandCounts, size: int) -> None:
    """Costs that may grow with the number of samplers."""
    with tempfile.TemporaryDirectory() as folder, running_stores(Path(folder)) as (_, stores):
        stores.runs.create(a_run())
        epoch = stores.runs.take_epoch(RUN).epoch
        register(stores, size)
        claim(stores, size * CLAIMS)
        registry = StoredRegistry(stores=stores, run=RUN, pool="main")
        works: dict[str, Callable[[], object]] = {
            "an agent's look for peers": lambda: parents("f" * 16, registry, level=1),
            "reaping": lambda: stores.tasks.reap(RUN),
            "expiring": lambda: stores.samplers.expire(RUN, silent_seconds=20),
            "forgetting": lambda: forget_ended(stores, run=RUN, epoch=epoch),
        }
        for what, work in works.items():
            note(result, f"{what} of {size}", cost(counts, work))


def of_length(result: Result, counts: CommandCounts, steps: int) -> None:
    """Costs that may grow with the length of the run."""
    with tempfile.TemporaryDirectory() as folder, running_stores(Path(folder)) as (_, stores):
        head = train(stores, 1, steps)
        stores.runs.create(a_run(step=steps, epoch=1, head_batch=head, durable=durable(steps)))
        bounds = Retention(batches=Bound(max_count=steps))
        sweeper = Sweeper(stores, run=RUN, bounds=bounds)
        note(
            result,
            f"a first pass of retention of {steps}",
            cost(counts, lambda: sweeper.sweep(epoch=1)),
        )
        again(stores, steps + 1, head)
        note(
            result, f"a pass of retention of {steps}", cost(counts, lambda: sweeper.sweep(epoch=1))
        )
        assert next(batch.step for batch in stores.batches.of_run(RUN)) == 2
        evaluations(result, stores, 25 * steps)

        def delete() -> None:
            while stores.mongo.delete_page(RUN):
                pass

        note(result, f"deletion of {steps}", cost(counts, delete))


def again(stores: Stores, step: int, head: str) -> None:
    """Train one more step and make it durable."""
    head = train(stores, step, step, parent=head)
    stores.mongo.collection("runs").update_one(
        {"_id": RUN},
        {"$set": {"step": step, "head_batch": head, "durable": durable(step).model_dump()}},
    )


def evaluations(result: Result, stores: Stores, number: int) -> None:
    """The size of the run document after so many evaluations."""
    record = EvaluationResult(
        step=1,
        version=1,
        dataset="arithmetic",
        temperature=1.0,
        accuracy=0.5,
        prompts=100,
        tokens=1000,
        versions={"1": 1000},
        logprob_gap_mean=0.0,
        logprob_gap_max=0.0,
        seconds=10.0,
        pass_at={"1": 0.5},
    )
    results = [record.model_copy(update={"step": step}) for step in range(number)]
    stores.runs.record_evaluation(RUN, epoch=1, last="e", newest=newest(results, temperature=1.0))
    stored = stores.mongo.collection("runs").find_one({"_id": RUN})
    assert stored is not None
    size = len(bson.encode(stored))
    print(f"the run document after {number} evaluations: {size} bytes", flush=True)
    result.at_most(f"bytes of the run document after {number} evaluations", size, RUN_BYTES)


def note(result: Result, what: str, found: Cost) -> None:
    """Keep and print a cost."""
    result.figures[what] = found.shown()
    print(f"{what}: {found.shown()}", flush=True)


def register(stores: Stores, size: int) -> None:
    """Living samplers that relay."""
    now = stores.mongo.now()
    samplers = [
        a_sampler(
            f"{number:08d}",
            heartbeat_at=now,
            relay_url="http://10.0.0.1:7001",
            relay_key=relay_key(f"{number:08d}"),
            scorers=["ExactMatch"],
            state=SamplerState.READY,
        )
        for number in range(size)
    ]
    stores.samplers.put(samplers)


def claim(stores: Stores, size: int) -> None:
    """Claimed tasks with prompts of the size of a word problem."""
    prompt = [{"role": "user", "content": "How many apples are left? " * 20}]
    until = stores.mongo.now() + 100
    for first in range(0, size, AT_ONCE):
        stores.tasks.insert(
            [
                a_task(
                    number,
                    state=TaskState.CLAIMED,
                    owner="s",
                    attempt=1,
                    lease_until=until,
                    messages=prompt,
                )
                for number in range(first, min(size, first + AT_ONCE))
            ]
        )


def durable(step: int) -> DurablePointer:
    """Of a checkpoint that nobody reads."""
    return DurablePointer(step=step, prefix="c/", manifest_sha256="0")


def train(stores: Stores, first: int, last: int, *, parent: str | None = None) -> str:
    """Write the documents of trained steps; returns the last batch."""
    for step in range(first, last + 1):
        tasks = [
            a_task(number, attempt=1, queue=Queue.CONSUMED, state=TaskState.DONE)
            for number in range((step - 1) * TASKS, step * TASKS)
        ]
        rollouts = [a_rollout(task, member) for task in tasks for member in range(MEMBERS)]
        stores.tasks.insert(tasks)
        stores.rollouts.put(rollouts)
        batch = a_batch(
            step,
            parent,
            state=BatchState.DURABLE,
            tasks=[task.id for task in tasks],
            members=members([rollout.id for rollout in rollouts]),
            next_sequence=step * TASKS,
        )
        stores.batches.put([batch])
        parent = batch.id
    assert parent is not None
    return parent


def members(rollouts: Sequence[str]) -> list[BatchMember]:
    """Members of a batch."""
    return [BatchMember(rollout=rollout, advantage=0.5) for rollout in rollouts]
