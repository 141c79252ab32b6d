"""Retention on the real store: interrupted, fenced out, and without losing what is needed."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.audit import batch as audit
from rl_contracts.audit import run as audit_run
from rl_contracts.documents import trained
from rl_contracts.documents.batch import BatchMember, BatchState
from rl_contracts.documents.run import DurablePointer, Totals
from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.errors import FencedOutError, StoreUnavailableError
from rl_contracts.retention.sweep import GROWTH, Sweeper
from rl_contracts.spec.retention import Bound, Retention
from rl_contracts.stores.batches import BatchStore
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.rollouts import RolloutStore
from tests.samples.documents import RUN, a_batch, a_rollout, a_run, a_saved_turn, a_task

STEPS, DURABLE = 6, 4
NEWEST = Retention(batches=Bound(max_count=3))


@pytest.fixture
def run(stores: Stores) -> Stores:
    """Six steps of one task with two rollouts each, four of them durable; one task that waits."""
    parent = None
    for step in range(1, STEPS + 1):
        task = a_task(step - 1, attempt=1, queue=Queue.CONSUMED, state=TaskState.DONE)
        rollouts = [a_rollout(task, member) for member in range(2)]
        stores.rollouts.put(rollouts)
        stores.tasks.insert(
            [task.model_copy(update={"rollouts": [rollout.id for rollout in rollouts]})]
        )
        batch = a_batch(
            step,
            parent,
            members=[BatchMember(rollout=rollout.id, advantage=0.5) for rollout in rollouts],
            tasks=[task.id],
            state=BatchState.DURABLE if step <= DURABLE else BatchState.TRAINED,
        )
        given = trained.sequences(batch, {rollout.id: rollout for rollout in rollouts})
        stores.batches.put(
            [batch.model_copy(update={"digest": trained.rebuilt_digest(given, like=None)})]
        )
        parent = batch.id
    waiting = a_task(STEPS, attempt=1, queue=Queue.TRAIN, state=TaskState.RETRY)
    stores.tasks.insert([waiting])
    stores.rollouts.put([a_rollout(waiting)])
    stores.runs.create(
        a_run(
            step=STEPS,
            epoch=1,
            head_batch=parent,
            durable=DurablePointer(step=DURABLE, prefix="c/", manifest_sha256="0"),
            totals=Totals(rollouts_trained=2 * STEPS, tokens_trained=4 * STEPS),
        )
    )
    return stores


def steps_left(stores: Stores) -> list[int]:
    return [batch.step for batch in stores.batches.of_run(RUN)]


def check_whole(stores: Stores, *, first: int) -> None:
    audited = audit_run.audit(stores, RUN)
    assert audited.good, audited.findings
    for step in range(first, STEPS + 1):
        assert audit.audit(stores, RUN, step=step).verdict == "match"
    run = stores.runs.get(RUN)
    assert run is not None
    lineage = stores.batches.lineage(run.head_batch, after_step=DURABLE)
    assert [step.step for step in lineage] == [5, 6]
    assert stores.tasks.total(RUN, queue=Queue.TRAIN) == 1


def test_a_dry_run_changes_nothing_and_a_pass_keeps_what_is_needed(run: Stores) -> None:
    sweeper = Sweeper(run, run=RUN, bounds=NEWEST)
    wanted = sweeper.plan()
    assert [len(ids) for ids in (wanted.batches, wanted.tasks, wanted.rollouts)] == [3, 3, 6]
    assert steps_left(run) == [1, 2, 3, 4, 5, 6]
    assert sweeper.sweep(epoch=1) == wanted
    assert steps_left(run) == [4, 5, 6]
    check_whole(run, first=4)
    document = run.runs.get(RUN)
    assert document is not None
    assert (document.deleted.batches_below, document.deleted.tasks_below) == (4, 4)
    assert sweeper.sweep(epoch=1).empty
    with pytest.raises(LookupError, match="kept steps: 4 to 6"):
        audit.audit(run, RUN, step=2)


def test_saved_turns_that_a_sampler_left_are_deleted_with_their_task(run: Stores) -> None:
    tasks = [a_task(number, attempt=1) for number in range(STEPS)]
    run.turns.save([a_saved_turn(task, 0) for task in tasks])
    deleted = Sweeper(run, run=RUN, bounds=NEWEST).sweep(epoch=1).tasks
    left = {task.id for task in tasks if run.turns.of_task(task.id)}
    assert left == {task.id for task in tasks} - set(deleted)
    assert len(left) == 3


def test_sizes_are_those_of_the_store(run: Stores) -> None:
    task = a_task(STEPS + 1, attempt=1, queue=Queue.CONSUMED)
    run.tasks.insert([task])
    run.rollouts.put([a_rollout(task, member, text="x" * 10_000) for member in range(2)])
    bounds = Retention(rollouts=Bound(max_bytes=24_000))
    chosen = Sweeper(run, run=RUN, bounds=bounds).sweep(epoch=1)
    assert len(chosen.rollouts) == 1
    assert chosen.held["rollouts"] == 0
    check_whole(run, first=1)


def test_a_damaged_rollout_is_deleted_like_any_other(run: Stores) -> None:
    task = a_task(STEPS + 1, attempt=1, queue=Queue.CONSUMED)
    run.tasks.insert([task])
    small = RolloutStore(run.mongo, run.objects, overflow_bytes=256)
    lost, whole = (a_rollout(task, member, text="x" * 10_000) for member in range(2))
    small.put([lost, whole])
    prefix = f"{run.run_prefix(RUN)}overflow/"
    assert run.objects.delete_prefix(f"{prefix}{lost.id}/")
    bounds = Retention(rollouts=Bound(max_bytes=5_000))
    chosen = Sweeper(run, run=RUN, bounds=bounds).sweep(epoch=1)
    assert {lost.id, whole.id} <= set(chosen.rollouts)
    assert run.objects.list(prefix) == []
    check_whole(run, first=1)


def test_a_damaged_batch_is_deleted_like_any_other(run: Stores) -> None:
    (first, *_) = run.batches.of_run(RUN)
    small = BatchStore(run.mongo, run.objects, overflow_bytes=16)
    small.put([first])
    prefix = f"{run.run_prefix(RUN)}batches/"
    stored = run.objects.list(prefix)
    assert stored
    for stored_object in stored:
        run.objects.put(stored_object.key, b"another")
    chosen = Sweeper(run, run=RUN, bounds=NEWEST).sweep(epoch=1)
    assert first.id in chosen.batches
    assert run.objects.list(prefix) == []
    assert steps_left(run) == [4, 5, 6]


def test_a_replaced_trainer_deletes_nothing(run: Stores) -> None:
    run.runs.take_epoch(RUN)
    with pytest.raises(FencedOutError):
        Sweeper(run, run=RUN, bounds=NEWEST).sweep(epoch=1)
    assert steps_left(run) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("collection", ["rollouts", "tasks", "batches"])
def test_an_interrupted_pass_is_completed_by_the_next(
    run: Stores, monkeypatch: pytest.MonkeyPatch, collection: str
) -> None:
    call = run.mongo.call

    def fails(doing: str, operation: Any) -> Any:
        if doing.startswith("deleting ") and doing.endswith(f" {collection}"):
            raise StoreUnavailableError(store="document store", doing=doing, cause="down")
        return call(doing, operation)

    with monkeypatch.context() as patch:
        patch.setattr(run.mongo, "call", fails)
        with pytest.raises(StoreUnavailableError):
            Sweeper(run, run=RUN, bounds=NEWEST).sweep(epoch=1)
    check_kept = [audit.audit(run, RUN, step=step).verdict for step in (4, 5, 6)]
    assert check_kept == ["match"] * 3
    Sweeper(run, run=RUN, bounds=NEWEST).sweep(epoch=1)
    assert steps_left(run) == [4, 5, 6]
    assert len(run.rollouts.of_run(RUN)) == 7
    check_whole(run, first=4)


def test_the_cost_of_retention_for_a_step_does_not_grow_with_the_run(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass lists all batches; passes get rarer as fast as the list gets longer."""
    listed: dict[int, int] = {}
    stores.runs.create(a_run(epoch=1))
    sweeper = Sweeper(stores, run=RUN, bounds=Retention(batches=Bound(max_count=1000)))
    call, parent = stores.mongo.call, None

    def counting(doing: str, operation: Any) -> Any:
        result = call(doing, operation)
        if doing.startswith("listing batches"):
            listed[step] = len(result)
        return result

    monkeypatch.setattr(stores.mongo, "call", counting)
    for step in range(1, 201):
        batch = a_batch(step, parent)
        stores.batches.put([batch])
        parent = batch.id
        fields = {"step": step, "head_batch": parent}
        stores.mongo.collection("runs").update_one({"_id": RUN}, {"$set": fields})
        sweeper.sweep(epoch=1, only_if_due=True)
    halves = [sum(listed.get(step, 0) for step in range(first, first + 100)) for first in (1, 101)]
    assert halves[1] / 100 <= 1.1 / GROWTH
    assert halves[1] <= 1.5 * halves[0]
    assert len(listed) < 80
