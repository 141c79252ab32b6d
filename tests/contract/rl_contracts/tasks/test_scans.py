"""Scans of tasks while samplers and trainers move them: none may be missed.

A scan of MongoDB is no snapshot; the front before the embedded store plays that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from rl_contracts.documents.run import DurablePointer
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.retention.sweep import Sweeper
from rl_contracts.spec.retention import Bound, Retention
from rl_contracts.stores import upgrade
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_trainer.rollouts import leftovers
from tests.network.mongo_front import Front
from tests.network.mongo_wire import Document
from tests.samples.documents import RUN, a_batch, a_rollout, a_run, a_task
from tests.samples.orphans import find_orphans

TRAINED, MOVING = 3, 1


@pytest.fixture
def afar(front: Front, store_settings: StoreSettings) -> Iterator[Stores]:
    settings = StoreSettings.from_mapping(store_settings.to_mapping() | front.settings)
    with closing(Stores.connect(settings, patience_seconds=20)) as stores:
        yield stores


def claimed_meanwhile(stores: Stores) -> str:
    task = stores.tasks.claim(RUN, queue=Queue.TRAIN, owner="s", lease_seconds=60)
    assert task is not None
    return task.id


def handed_back(stores: Stores) -> str:
    (task,) = stores.tasks.find(RUN, queue=Queue.TRAIN, state=TaskState.CLAIMED)
    assert stores.tasks.hand_back(task, reason="failed")
    return task.id


@pytest.fixture
def trained(stores: Stores) -> Stores:
    """Three trained tasks but the second, which waits for its second attempt; two durable steps."""
    parent = None
    for number in range(TRAINED):
        waits = number == MOVING
        queue = Queue.TRAIN if waits else Queue.CONSUMED
        state = TaskState.RETRY if waits else TaskState.DONE
        task = a_task(number, attempt=1, queue=queue, state=state)
        stores.tasks.insert([task])
        stores.rollouts.put([a_rollout(task)])
        batch = a_batch(number + 1, parent, next_sequence=TRAINED, tasks=[task.id])
        stores.batches.put([batch])
        parent = batch.id
    durable = DurablePointer(step=TRAINED, prefix="c/", manifest_sha256="0")
    stores.runs.create(a_run(step=TRAINED, epoch=1, head_batch=parent, durable=durable))
    return stores


def test_a_task_that_moves_during_a_sweep_stays_trainable(
    trained: Stores, front: Front, afar: Stores
) -> None:
    front.moves = lambda: claimed_meanwhile(trained)
    bounds = Retention(batches=Bound(max_count=1), tasks=Bound(max_count=1))
    Sweeper(afar, run=RUN, bounds=bounds).sweep(epoch=1)
    assert front.moves is None
    run = trained.runs.require(RUN)
    assert run.deleted.tasks_below <= MOVING, "its group would be dropped as trained before"
    assert a_task(MOVING).id in trained.tasks.get([a_task(MOVING).id])


def test_an_audit_sees_a_task_that_moves(trained: Stores, front: Front, afar: Stores) -> None:
    front.moves = lambda: claimed_meanwhile(trained)
    assert find_orphans(afar.mongo, RUN).unclaimed_rollouts == []
    assert front.moves is None


def test_an_upgrade_rewrites_a_task_that_moves(trained: Stores, front: Front, afar: Stores) -> None:
    front.moves = lambda: claimed_meanwhile(trained)
    done = upgrade.upgrade(afar.mongo, RUN, kinds=["tasks"], write=False)
    assert front.moves is None
    assert done.versions["tasks"].total() == TRAINED


def test_a_finished_run_leaves_no_task_in_its_queues(
    stores: Stores, front: Front, afar: Stores
) -> None:
    stores.tasks.insert([a_task(number) for number in range(2)])
    claimed_meanwhile(stores)

    def between_two_states(command: Document) -> None:
        """Hands the claimed task back after those to be retried were listed."""
        scanned = command.get("find") == "tasks"
        if scanned and command["filter"].get("state", TaskState.CLAIMED) == TaskState.CLAIMED:
            front.hook = None
            handed_back(stores)

    front.hook = between_two_states
    leftovers.put_away(afar, RUN)
    assert front.hook is None
    assert stores.tasks.total(RUN, queue=Queue.TRAIN) == 0


def test_tasks_that_a_replaced_trainer_inserts_are_put_away_too(
    stores: Stores, front: Front, afar: Stores
) -> None:
    stores.tasks.insert([a_task(0)])

    def inserts(command: Document) -> None:
        if next(iter(command)) == "update":
            front.hook = None
            stores.tasks.insert([a_task(1)])

    front.hook = inserts
    leftovers.put_away(afar, RUN)
    assert front.hook is None
    assert stores.tasks.total(RUN, queue=Queue.TRAIN) == 0
