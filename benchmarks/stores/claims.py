"""Claims per second beside the bare command, and what a hundred thousand tasks do to one claim.

A real embedded document store. Each worker is a process with a client of its own; all workers claim
for a while through the task store, then for as long with the bare ``find_one_and_update`` of the
same filter, in turns, so that what disturbs disturbs both sides.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from pymongo import ReturnDocument

from benchmarks.support.result import Result, is_quick
from rl_contracts.documents.task import Queue, Task, TaskState
from rl_contracts.stores.claiming import RETRY_CHECK_SECONDS
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.samples.documents import a_task
from tests.servers import running_store

WORKERS = (1, 8, 32)
TASKS, FEW = 100_000, 1_000
ROUNDS, SECONDS = 4, RETRY_CHECK_SECONDS
"""A turn lasts as long as the check for tasks to retry is cached, so it has exactly one check."""
LATENCY_ROUNDS, LATENCY_CLAIMS = 8, 100
INSERTED_AT_ONCE = 5_000
DEADLINE_SECONDS = 300.0


def main() -> None:
    """Measure and print."""
    quick = is_quick(__doc__)
    result = Result("stores.claims")
    with tempfile.TemporaryDirectory() as folder, running_store(Path(folder)) as server:
        settings = settings_of(server.uri)
        with closing(Stores.connect(settings)) as stores:
            stores.mongo.ensure_indexes()
            fill(stores, "few", FEW)
            fill(stores, "many", TASKS // 5 if quick else TASKS)
            latency(stores, result, rounds=3 if quick else LATENCY_ROUNDS)
            for workers in WORKERS:
                throughput(settings, result, workers, rounds=1 if quick else ROUNDS)
    result.print()


def settings_of(uri: str) -> StoreSettings:
    """A document store; this benchmark uses no bucket."""
    return StoreSettings.from_mapping(
        {
            "mongoUri": uri,
            "mongoDatabase": "rl_claims",
            "s3Endpoint": "http://127.0.0.1:1",
            "s3Bucket": "none",
            "s3AccessKey": "none",
            "s3SecretKey": "none",
        }
    )


def fill(stores: Stores, run: str, count: int) -> None:
    """Insert pending tasks with prompts of the size of a word problem."""
    prompt = [{"role": "user", "content": "How many apples are left? " * 8}]
    for first in range(0, count, INSERTED_AT_ONCE):
        stores.tasks.insert(
            [
                a_task(number, id=f"{run}.train.{number:08d}", run=run, messages=prompt)
                for number in range(first, min(count, first + INSERTED_AT_ONCE))
            ]
        )
    print(f"{count} tasks are pending in run {run}", flush=True)


def latency(stores: Stores, result: Result, *, rounds: int) -> None:
    """A worker's claims in a short and in a long queue, in turns; no task is used up."""
    times: dict[str, list[float]] = {"few": [], "many": []}
    for _ in range(rounds):
        for run, seconds in times.items():
            seconds.append(seconds_per_claim(stores, run))
    ratio = statistics.median(
        many / few for few, many in zip(times["few"], times["many"], strict=True)
    )
    for run, seconds in times.items():
        result.figures[f"claim_ms_{run}"] = round(1e3 * statistics.median(seconds), 3)
    result.at_most("latency of a claim among 100,000 tasks to one among 1,000", ratio, 1.5)
    print(f"latency: {result.figures}", flush=True)


def seconds_per_claim(stores: Stores, run: str) -> float:
    """The median of some claims, which are handed back."""
    latencies, claimed = [], []
    for _ in range(LATENCY_CLAIMS):
        started = time.perf_counter()
        task = stores.tasks.claim(run, queue=Queue.TRAIN, owner="me", lease_seconds=60)
        latencies.append(time.perf_counter() - started)
        assert task is not None
        claimed.append(task)
    unclaim(stores, claimed)
    return statistics.median(latencies)


def unclaim(stores: Stores, tasks: list[Task]) -> None:
    """Make tasks pending again, as if nobody had tried them."""
    ids = [task.id for task in tasks]
    stores.mongo.collection("tasks").update_many(
        {"_id": {"$in": ids}}, {"$set": {"state": TaskState.PENDING, "owner": "", "attempt": 0}}
    )


def throughput(settings: StoreSettings, result: Result, workers: int, *, rounds: int) -> None:
    """Claims per second of some worker processes, ours and bare in turns."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(workers + 1), context.SimpleQueue()
    values = settings.to_mapping()
    processes = [
        context.Process(target=work, args=(values, barrier, answers, rounds), daemon=True)
        for _ in range(workers)
    ]
    for process in processes:
        process.start()
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(rounds):
        for side, per_second in rates.items():
            barrier.wait(DEADLINE_SECONDS)
            answered = [answers.get() for _ in processes]
            assert all(answer[0] == side for answer in answered)
            per_second.append(sum(answer[1] for answer in answered))
    for process in processes:
        process.join(DEADLINE_SECONDS)
    ratio = statistics.median(
        ours / bare for ours, bare in zip(rates["ours"], rates["bare"], strict=True)
    )
    figures = {
        f"{side}_per_s": round(statistics.median(per_second)) for side, per_second in rates.items()
    }
    result.figures[f"{workers} workers"] = figures
    result.at_least(f"claims of {workers} workers to the bare command", ratio, 0.8)
    print(f"{workers} workers: {figures}, ratio {ratio:.2f}", flush=True)


def work(values: dict[str, str], barrier: Barrier, answers: Any, rounds: int) -> None:
    """One worker process: answers (side, claims per second) after each turn."""
    with closing(Stores.connect(StoreSettings.from_mapping(values))) as stores:
        sides: dict[str, Callable[[], object]] = {
            "ours": lambda: ours(stores),
            "bare": lambda: bare(stores),
        }
        for claim in sides.values():
            claim()  # connect
        for _ in range(rounds):
            for side, claim in sides.items():
                barrier.wait(DEADLINE_SECONDS)
                answers.put((side, rate(claim)))


def rate(claim: Callable[[], object]) -> float:
    """Claims per second over a while."""
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        claim()
        count += 1
    return count / (time.perf_counter() - started)


def ours(stores: Stores) -> None:
    """A claim as samplers make it."""
    task = stores.tasks.claim("many", queue=Queue.TRAIN, owner="me", lease_seconds=60)
    assert task is not None


def bare(stores: Stores) -> None:
    """The command that every claim needs."""
    stored = stores.mongo.collection("tasks").find_one_and_update(
        {"run": "many", "queue": Queue.TRAIN, "state": TaskState.PENDING},
        {
            "$set": {"state": TaskState.CLAIMED, "owner": "me", "lease_until": time.time()},
            "$inc": {"attempt": 1},
        },
        return_document=ReturnDocument.AFTER,
    )
    assert stored is not None


if __name__ == "__main__":
    main()
