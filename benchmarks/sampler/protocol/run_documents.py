"""Documents of runs as trainers and samplers leave them, for measurements."""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.documents.arrays import pack_float32, pack_int32
from rl_contracts.documents.batch import BatchMember, BatchState
from rl_contracts.documents.rollout import VersionSpan
from rl_contracts.documents.run import DurablePointer
from rl_contracts.documents.sampler import SamplerState
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.stores.connect import Stores
from rl_sampler.policy.relay.peers import relay_key
from tests.samples.documents import RUN, a_batch, a_rollout, a_sampler, a_task

TASKS, MEMBERS = 8, 4
"""Of a step."""
TOKENS = 512
AT_ONCE = 2000


def finish(stores: Stores, first: int) -> list[str]:
    """Finished groups that were not read yet."""
    tasks, arrays = (
        [],
        {
            "tokens": pack_int32([7] * TOKENS),
            "mask": b"\0\0" + b"\1" * (TOKENS - 2),
            "logprobs": pack_float32([-1.0] * TOKENS),
            "spans": [VersionSpan(version=1, step=0, start=2, end=TOKENS)],
        },
    )
    for number in range(first, first + TASKS):
        task = a_task(number, attempt=1, state=TaskState.DONE, group_size=MEMBERS)
        rollouts = [a_rollout(task, member, **arrays) for member in range(MEMBERS)]
        stores.rollouts.put(rollouts)
        tasks.append(task.model_copy(update={"rollouts": [each.id for each in rollouts]}))
    stores.tasks.insert(tasks)
    return [task.id for task in tasks]


def again(stores: Stores, step: int, head: str) -> None:
    """Train one more step and make it durable."""
    head = train(stores, step, step, parent=head)
    stores.mongo.collection("runs").update_one(
        {"_id": RUN},
        {"$set": {"step": step, "head_batch": head, "durable": durable(step).model_dump()}},
    )


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
