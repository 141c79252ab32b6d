"""What the run's own work costs, at two sizes: peers, sweeps, intake, retention, deletion."""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import bson

from benchmarks.sampler.protocol import command_counts
from benchmarks.sampler.protocol.command_counts import CommandCounts
from benchmarks.sampler.protocol.run_documents import (
    TASKS,
    TOKENS,
    again,
    claim,
    durable,
    finish,
    register,
    train,
)
from benchmarks.support.result import Result
from benchmarks.support.samplers import running_stores
from rl_contracts.documents.evaluation import EvaluationResult, newest
from rl_contracts.documents.step_metrics import MetricsFile
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.retention.samplers import forget_ended
from rl_contracts.retention.sweep import GROWTH, Sweeper
from rl_contracts.spec.retention import Bound, Retention
from rl_contracts.stores.connect import Stores
from rl_sampler.policy.relay.peers import StoredRegistry, parents
from rl_trainer.algorithm.groups import Limits, assemble
from rl_trainer.checkpoint import report
from tests.samples.documents import RUN, a_run, a_step

CLAIMS = 8
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
    small, large = (result.figures[f"an agent's search for peers of {size}"] for size in samplers)
    what = f"bytes of an agent's search for peers, {samplers[1]} to {samplers[0]}"
    result.at_most(what, large["kb"] / small["kb"], 1.5)
    # A pass follows when the run has grown by a share of its steps.
    shares = [
        result.figures[f"a pass of retention of {size}"]["kb"] / (GROWTH * size) for size in steps
    ]
    result.figures["kb of retention for each step"] = [round(share, 1) for share in shares]
    what = f"bytes of retention for each step, {steps[1]} to {steps[0]}"
    result.at_most(what, shares[1] / shares[0], 1.5)
    taken = [result.figures[f"intake of a step after {size}"]["kb"] for size in steps]
    what = f"bytes of a step's intake, {steps[1]} to {steps[0]} steps"
    result.at_most(what, taken[1] / taken[0], 1.5)


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
            "an agent's search for peers": lambda: parents("f" * 16, registry, level=1),
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
        first = finish(stores, (steps + 1) * TASKS)
        note(result, f"intake of a step after {steps}", cost(counts, lambda: take_in(stores)))
        stores.tasks.retire(first)
        note(result, f"metrics of 100 steps after {steps}", report_cost(stores, counts, steps))

        def delete() -> None:
            while stores.mongo.delete_page(RUN):
                pass

        note(result, f"deletion of {steps}", cost(counts, delete))


def take_in(stores: Stores) -> None:
    """What the trainer's supply does for a step: ids, tasks, heads of rollouts, groups."""
    done = stores.tasks.ids(RUN, queue=Queue.TRAIN, state=TaskState.DONE)
    stores.tasks.total(RUN, queue=Queue.TRAIN)
    tasks = list(stores.tasks.get(done).values())
    read = stores.rollouts.heads([name for task in tasks for name in task.rollouts])
    limits = Limits(vocabulary=100, max_tokens=TOKENS)
    groups = [assemble(task, read.whole, limits) for task in tasks]
    assert len(groups) == TASKS
    assert not any(isinstance(group, str) for group in groups)


def report_cost(stores: Stores, counts: CommandCounts, steps: int) -> Cost:
    """Keeping ``metrics.jsonl`` through a hundred steps with a checkpoint after each."""
    metrics = [a_step(step) for step in range(1, steps + 101)]

    def write() -> None:
        file = MetricsFile(epoch=1, steps=steps)
        for more in range(1, 101):
            file = report.write_metrics_if_due(
                stores.objects, "reports/", metrics[: steps + more], epoch=1, written=file
            )

    return cost(counts, write)


def evaluations(result: Result, stores: Stores, number: int) -> None:
    """The size of the run document after a number of evaluations."""
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


def note(result: Result, what: str, cost: Cost) -> None:
    """Keep and print a cost."""
    result.figures[what] = cost.shown()
    print(f"{what}: {cost.shown()}", flush=True)
