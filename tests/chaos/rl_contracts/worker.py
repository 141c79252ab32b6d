"""A sampler's part of the contract as a process that may be killed at any instruction.

``python worker.py URI DATABASE RUN NAME``: claims, adopts, writes members one by one, completes,
and now and then gives back, until killed. Its engine is a pause.
"""

from __future__ import annotations

import random
import sys
import time

from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.rollout import Rollout, StopReason, Timings, VersionSpan
from rl_contracts.documents.task import Queue, Task
from rl_contracts.ids import TaskId, rollout_id
from rl_contracts.stores.mongo import Mongo
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.rollouts import RolloutStore
from rl_contracts.stores.settings import StoreSettings
from rl_contracts.stores.tasks import TaskStore

LEASE_SECONDS = 4.0
MEMBER_SECONDS = 0.1
IDLE_SECONDS = 0.05
FAILING_SHARE = 0.03


def a_member(task: Task, member: int) -> Rollout:
    return Rollout(
        id=rollout_id(TaskId(task.id), task.attempt, member),
        run=task.run,
        task=task.id,
        attempt=task.attempt,
        member=member,
        sampler=task.owner,
        temperature=task.temperature,
        tokens=pack_int32([5, 6, 7, 2]),
        mask=b"\0\0\1\1",
        logprobs=pack_float32([0, 0, -0.5, -0.25]),
        spans=[VersionSpan(version=1, step=0, start=2, end=4)],
        text="2",
        stop_reason=StopReason.STOP,
        reward=1.0,
        parts=[],
        timings=Timings(claimed_at=1.0, generate_seconds=0.1, score_seconds=0.0),
    )


def work(tasks: TaskStore, rollouts: RolloutStore, task: Task) -> None:
    members = {one.member: one.id for one in rollouts.of_task(task.id)}
    for member in range(task.group_size):
        if member not in members:
            time.sleep(random.uniform(0, 2 * MEMBER_SECONDS))
            fresh = a_member(task, member)
            rollouts.put([fresh])
            members[member] = fresh.id
    if random.random() < FAILING_SHARE:
        tasks.hand_back(task, reason="the judge is down")
        return
    tasks.complete(task, rollouts=[members[one] for one in range(task.group_size)])


def main(uri: str, database: str, run: str, name: str) -> None:
    unused = dict.fromkeys(("s3Endpoint", "s3Bucket", "s3AccessKey", "s3SecretKey"), "http://x")
    named = {"mongoUri": uri, "mongoDatabase": database}
    settings = StoreSettings.from_mapping(unused | {"s3Bucket": "unused"} | named)
    mongo = Mongo(settings)
    tasks, rollouts = TaskStore(mongo), RolloutStore(mongo, Objects(settings))
    while True:
        task = tasks.claim(run, queue=Queue.TRAIN, owner=name, lease_seconds=LEASE_SECONDS)
        if task is None:
            time.sleep(IDLE_SECONDS)
        else:
            work(tasks, rollouts, task)


if __name__ == "__main__":
    main(*sys.argv[1:])
