"""Eight workers, killed at random for two minutes: every task ends, nothing belongs to nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rl_contracts.documents.task import Cause, Queue, Task, TaskState
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.samples.documents import RUN, a_task
from tests.samples.orphans import find_orphans
from tests.servers import ROOT

WORKERS, TASKS, GROUP = 8, 2000, 4
STORM_SECONDS = float(os.environ.get("RL_STORM_SECONDS", "120"))
END_SECONDS = 600.0
REAP_SECONDS = 1.0


@dataclass
class Workers:
    """The processes, each replaced as soon as it was killed."""

    settings: StoreSettings
    folder: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    kills: int = 0

    def start(self) -> None:
        name = f"w{self.kills + len(self.running)}"
        uri, database = self.settings.mongo_uri.get_secret_value(), self.settings.mongo_database
        script = Path(__file__).with_name("worker.py")
        with (self.folder / "workers.log").open("ab") as log:
            self.running.append(
                subprocess.Popen(
                    [sys.executable, str(script), uri, database, RUN, name],
                    env=os.environ | {"PYTHONPATH": f"{ROOT / 'contracts'}{os.pathsep}{ROOT}"},
                    stdout=log,
                    stderr=log,
                )
            )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        assert process.poll() is None, (self.folder / "workers.log").read_text()[-2000:]
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        self.running.remove(process)

    def stop(self) -> None:
        for process in list(self.running):
            self.kill(process)


@pytest.mark.timeout(1200)
def test_killed_workers_lose_no_task(
    stores: Stores, store_settings: StoreSettings, tmp_path: Path
) -> None:
    for first in range(0, TASKS, 500):
        numbers = range(first, first + 500)
        stores.tasks.insert([a_task(number, group_size=GROUP) for number in numbers])
    workers = Workers(store_settings, tmp_path)
    draw = random.Random(7)
    reaped = 0
    try:
        for _ in range(WORKERS):
            workers.start()
        ends = time.monotonic() + STORM_SECONDS
        while time.monotonic() < ends:
            time.sleep(draw.uniform(0.2, 1.8))  # the storm's own rhythm: it waits for nothing
            workers.kill(draw.choice(workers.running))
            workers.kills += 1
            workers.start()
            reaped += stores.tasks.reap(RUN)
        deadline = time.monotonic() + END_SECONDS
        while open_tasks(stores):
            assert time.monotonic() < deadline, stores.tasks.count(RUN, queue=Queue.TRAIN)
            time.sleep(REAP_SECONDS)
            reaped += stores.tasks.reap(RUN)
    finally:
        workers.stop()
    tasks = every_task(stores)
    check(stores, tasks)
    figures = {
        "kills": workers.kills,
        "leasesTakenBack": reaped,
        "states": Counter(task.state.value for task in tasks),
        "attempts": Counter(task.attempt for task in tasks),
        "membersAdopted": sum(adopted(task) for task in tasks),
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    assert reaped > 0
    assert figures["membersAdopted"]


def open_tasks(stores: Stores) -> int:
    counts = stores.tasks.count(RUN, queue=Queue.TRAIN)
    return counts[TaskState.PENDING] + counts[TaskState.RETRY] + counts[TaskState.CLAIMED]


def every_task(stores: Stores) -> list[Task]:
    return [
        task
        for state in TaskState
        for task in stores.tasks.find(RUN, queue=Queue.TRAIN, state=state)
    ]


def check(stores: Stores, tasks: list[Task]) -> None:
    assert sorted(task.sequence for task in tasks) == list(range(TASKS)), "a task was lost"
    assert {task.state for task in tasks} <= {TaskState.DONE, TaskState.DEAD}
    for task in tasks:
        if task.state is TaskState.DEAD:
            assert task.attempt == task.max_attempts
            assert task.cause in (Cause.LEASE, Cause.FAILED)
            assert task.reason
        else:
            members = [int(name.rsplit(".", 1)[1]) for name in task.rollouts]
            assert members == list(range(GROUP))
            assert all(name.startswith(f"{task.id}.") for name in task.rollouts)
    orphans = find_orphans(stores.mongo, RUN)
    assert not orphans, orphans


def adopted(task: Task) -> int:
    return sum(int(name.split(".")[-2]) < task.attempt for name in task.rollouts)
