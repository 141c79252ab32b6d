"""A sampler's part of the contract as a process that may be killed at any instruction.

``python worker.py URI DATABASE RUN NAME``: claims, adopts, writes members one by one, completes,
and now and then gives back, until killed. Its engine is a pause.
"""

from __future__ import annotations

import random
import sys
import time

from rl_contracts.documents.task import Queue, Task
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.rollouts import RolloutStore
from rl_contracts.stores.tasks import TaskStore
from tests.samples.documents import a_rollout

LEASE_SECONDS = 4.0
MEMBER_SECONDS = 0.1
IDLE_SECONDS = 0.05
FAILING_SHARE = 0.03


def work(tasks: TaskStore, rollouts: RolloutStore, task: Task) -> None:
    members = {rollout.member: rollout.id for rollout in rollouts.of_task(task.id)}
    for member in range(task.group_size):
        if member not in members:
            time.sleep(random.uniform(0, 2 * MEMBER_SECONDS))
            fresh = a_rollout(task, member, sampler=task.owner)
            rollouts.put([fresh])
            members[member] = fresh.id
    if random.random() < FAILING_SHARE:
        tasks.hand_back(task, reason="the judge is down")
        return
    tasks.complete(task, rollouts=[members[index] for index in range(task.group_size)])


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
