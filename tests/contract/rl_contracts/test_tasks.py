"""Tasks on the real embedded store: claimed once, never lost, finished by their owner alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from rl_contracts.documents.task import Queue, Task, TaskState
from rl_contracts.stores.connect import Stores
from tests.documents import RUN, a_task


def claim(stores: Stores, owner: str = "a", lease: float = 60.0) -> Task | None:
    return stores.tasks.claim(RUN, queue=Queue.TRAIN, owner=owner, lease_seconds=lease)


def stored(stores: Stores, task: Task) -> Task:
    return stores.tasks.get([task.id])[task.id]


def test_inserting_again_changes_nothing(stores: Stores) -> None:
    stores.tasks.insert([a_task(0), a_task(1)])
    claimed = claim(stores)
    stores.tasks.insert([a_task(0), a_task(1), a_task(2)])
    assert claimed is not None
    assert stored(stores, claimed) == claimed
    counts = stores.tasks.count(RUN, queue=Queue.TRAIN)
    assert (counts[TaskState.CLAIMED], counts[TaskState.PENDING]) == (1, 2)


def test_parallel_claims_take_each_task_once(stores: Stores) -> None:
    stores.tasks.insert([a_task(i) for i in range(60)])

    def drain(owner: str) -> list[str]:
        taken = []
        while (task := claim(stores, owner)) is not None:
            taken.append(task.id)
        return taken

    with ThreadPoolExecutor(8) as pool:
        taken = [one for ids in pool.map(drain, [f"w{i}" for i in range(8)]) for one in ids]
    assert sorted(taken) == [a_task(i).id for i in range(60)]


def test_retries_come_before_pending_tasks(stores: Stores) -> None:
    stores.tasks.insert([a_task(0), a_task(1)])
    first = claim(stores)
    assert first is not None
    assert stores.tasks.hand_back(first, reason="engine restarted")
    again = claim(stores, "b")
    assert again is not None
    assert (again.id, again.attempt, again.owner) == (first.id, 2, "b")


def test_the_last_attempt_that_fails_ends_the_task_with_its_reason(stores: Stores) -> None:
    stores.tasks.insert([a_task(0, max_attempts=1)])
    task = claim(stores)
    assert task is not None
    assert stores.tasks.hand_back(task, reason="scorer down")
    after = stored(stores, task)
    assert (after.state, after.reason) == (TaskState.DEAD, "scorer down")


def test_a_lost_claim_can_neither_be_renewed_nor_completed(stores: Stores) -> None:
    stores.tasks.insert([a_task(0)])
    task = claim(stores, lease=-1.0)
    assert task is not None
    assert stores.tasks.reap(RUN) == 1
    assert not stores.tasks.renew(task, lease_seconds=60)
    assert not stores.tasks.complete(task, rollouts=["late"])
    successor = claim(stores, "b")
    assert successor is not None
    assert not stores.tasks.complete(task, rollouts=["late"])
    assert stores.tasks.complete(successor, rollouts=["good"])
    assert stored(stores, task).rollouts == ["good"]


def test_a_renewed_lease_is_not_reaped(stores: Stores) -> None:
    stores.tasks.insert([a_task(0)])
    task = claim(stores, lease=-1.0)
    assert task is not None
    assert stores.tasks.renew(task, lease_seconds=60)
    assert stores.tasks.reap(RUN) == 0


def test_completing_again_after_a_lost_reply_is_success(stores: Stores) -> None:
    stores.tasks.insert([a_task(0)])
    task = claim(stores)
    assert task is not None
    assert stores.tasks.complete(task, rollouts=["x", "y"])
    assert stores.tasks.complete(task, rollouts=["x", "y"])
    assert not stores.tasks.complete(task, rollouts=["x", "z"])


@pytest.mark.parametrize(
    ("reason", "state"), [("", TaskState.DONE), ("too old", TaskState.DEAD)]
)  # fmt: skip
def test_consumed_tasks_leave_the_queue_and_stay_for_the_audit(
    stores: Stores, reason: str, state: TaskState
) -> None:
    stores.tasks.insert([a_task(0)])
    task = claim(stores)
    assert task is not None
    stores.tasks.complete(task, rollouts=["x"])
    stores.tasks.consume([task.id], dropped=reason)
    assert stores.tasks.find(RUN, queue=Queue.TRAIN, state=TaskState.DONE) == []
    after = stored(stores, task)
    assert (after.queue, after.state, after.reason) == (Queue.CONSUMED, state, reason)


def test_queues_and_runs_are_apart(stores: Stores) -> None:
    stores.tasks.insert([a_task(0, queue=Queue.EVALUATION)])
    assert claim(stores) is None
    taken = stores.tasks.claim("other", queue=Queue.EVALUATION, owner="a", lease_seconds=1)
    assert taken is None
