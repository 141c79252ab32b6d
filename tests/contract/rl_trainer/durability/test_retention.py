"""A trainer that deletes what it may, dies and goes on."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from rl_contracts.audit import batch as audit_batch
from rl_contracts.audit import run as audit_run
from rl_contracts.documents.batch import BatchState
from rl_contracts.documents.run import DurablePointer
from rl_contracts.documents.task import Cause, Queue, Task, TaskState
from rl_contracts.ids import RunId
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.runs import RunStore
from rl_contracts.stores.tasks import TaskStore
from rl_trainer.checkpoint.retention import with_bases
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.durability.crash import Crashed, crashing_after
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World

STEPS = 8
KEPT = {
    "batches": {"maxCount": 2},
    "tasks": {"maxCount": 4},
    "rollouts": {"maxCount": 8},
    "policies": {"maxBytes": 1},
    "checkpoints": {"maxBytes": 1},
}


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    made = make_world(steps=STEPS, checkpoint={"everySteps": 2, "keepLast": 3})
    values = made.spec.model_dump(by_alias=True) | {"lifecycle": {"retention": KEPT}}
    made.spec = made.spec.model_validate(values)
    made.write_mounts()
    return made


@pytest.mark.soak
def test_a_run_that_deletes_and_crashes_is_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, crashes = random.Random(3), 0
    with sampling(TestSampler(world.stores, RUN)):
        while crashes < 6:
            try:
                with crashing_after(draw.randint(40, 160), monkeypatch):
                    assert world.attempt() == 0
                break
            except Crashed:
                crashes += 1
        else:
            assert world.attempt() == 0
    assert crashes >= 1
    assert (world.outcome.kind, world.run.step) == ("Succeeded", STEPS)
    kept = [batch.step for batch in world.stores.batches.of_run(RUN)]
    assert max(kept) == STEPS
    durable = world.run.durable.step if world.run.durable else 0
    assert set(range(max(1, durable), STEPS + 1)) <= set(kept)
    assert min(kept) >= min(durable, STEPS - 1)  # two stay if none of them is needed
    report = audit_run.audit(world.stores, RUN)
    assert report.good, report.findings
    for step in {step.step for step in report.facts.lineage.steps}:
        assert audit_batch.audit(world.stores, RUN, step=step).good
    assert world.run.totals.rollouts_trained == STEPS * 16
    durable_state = world.run.durable
    assert durable_state is not None
    assert folders(world, "checkpoints") == {durable_state.prefix}
    records = world.stores.policies.of_run(RUN)
    kept_policies = [record for record in records if record.marked_at is None]
    assert {kept_policy.version for kept_policy in kept_policies} == with_bases(
        records, {world.run.last_version}
    )
    assert {kept_policy.prefix for kept_policy in kept_policies} <= folders(world, "policies")


@pytest.mark.soak
@pytest.mark.parametrize("named", [False, True], ids=["before-it-is-durable", "once-it-is-durable"])
def test_a_trainer_that_dies_in_its_last_checkpoint_leaves_nothing_in_the_bucket(
    world: World, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """Uploaded and not named, or named and what it replaces not deleted: no step is left then."""
    make_durable = RunStore.make_durable

    def dying(self: RunStore, run: RunId, *, epoch: int, pointer: DurablePointer) -> None:
        if named or pointer.step < STEPS:
            make_durable(self, run, epoch=epoch, pointer=pointer)
        if pointer.step == STEPS:
            raise Crashed

    with sampling(TestSampler(world.stores, RUN)):
        with monkeypatch.context() as patch:
            patch.setattr(RunStore, "make_durable", dying)
            with pytest.raises(Crashed):
                world.attempt()
        assert len(folders(world, "checkpoints")) == 2
        assert world.run.step == STEPS
        assert world.attempt() == 0
    durable = world.run.durable
    assert durable is not None
    assert durable.step == STEPS
    assert folders(world, "checkpoints") == {durable.prefix}
    assert all(batch.state == BatchState.DURABLE for batch in world.stores.batches.of_run(RUN))


def folders(world: World, kind: str) -> set[str]:
    root = f"{world.stores.run_prefix(RUN)}{kind}/"
    keys = [stored_object.key for stored_object in world.stores.objects.list(root)]
    return {f"{root}{key.removeprefix(root).split('/')[0]}/" for key in keys}


@pytest.mark.soak
def test_a_task_that_was_trained_and_deleted_is_not_trained_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    stores, deleted = world.stores, world.run.deleted.tasks_below
    assert deleted > 0
    (last, *_) = stores.tasks.find(RUN, queue=Queue.CONSUMED, state=TaskState.DONE)[::-1]
    # What a trainer that slept through all this inserts, and a sampler then answers.
    name = f"{RUN}.train.{0:08d}"
    assert not stores.tasks.get([name])
    ghost = last.model_copy(update={"id": name, "sequence": 0, "queue": Queue.TRAIN})
    stores.tasks.insert([ghost])
    undo_end(stores, ghost)
    messages: list[str] = []
    drop = TaskStore.drop

    def heard(self: TaskStore, tasks: Sequence[str], *, reason: str, cause: Cause) -> None:
        messages.extend(f"{name}: {reason}" for name in tasks)
        drop(self, tasks, reason=reason, cause=cause)

    monkeypatch.setattr(TaskStore, "drop", heard)
    values = world.spec.model_dump(by_alias=True)
    values["training"]["steps"] = STEPS + 2
    world.spec = world.spec.model_validate(values)
    world.write_mounts()
    with sampling(TestSampler(stores, RUN)):
        assert world.attempt() == 0
    assert stores.tasks.total(RUN, queue=Queue.TRAIN) == 0
    assert f"{name}: its place in the stream was trained before" in messages
    trained = {task for batch in stores.batches.of_run(RUN) for task in batch.tasks}
    assert name not in trained


def undo_end(stores: Stores, ghost: Task) -> None:
    """As if the run had not been complete."""
    assert ghost.state == TaskState.DONE
    runs = stores.mongo.collection("runs")
    runs.update_one({"_id": RUN}, {"$set": {"outcome": None, "steps": STEPS + 2}})
