"""Stores that were restored from backups of any age: the run goes on, or names what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from rl_contracts.documents.run import Notice
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.documents.task import Cause, Queue, TaskState
from rl_contracts.ids import RunId
from rl_contracts.stores.runs import RunStore
from tests.contract.backups import NO_DOCUMENTS, Bucket, Documents
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.samples.documents import a_run, a_sampler
from tests.waiting import until

STEPS = 6
SUCCEEDED, REFUSED = 0, 2


@dataclass(frozen=True, slots=True)
class Past:
    """Backups of a run that has succeeded, by the step after whose commit they were made."""

    documents: dict[int, Documents]
    bucket: dict[int, Bucket]


def trained(world: World, monkeypatch: pytest.MonkeyPatch) -> Past:
    """Train a run to its end, and back up both stores after each commit and at the end."""
    past = Past({}, {})
    commit = RunStore.commit_step

    def backed_up(store: RunStore, run: RunId, *, latest: StepMetrics, **fields: Any) -> None:
        commit(store, run, latest=latest, **fields)
        back_up(latest.step)

    def back_up(step: int) -> None:
        durable = (step - 1) // 2 * 2  # checkpoints are written beside training
        until(lambda: not durable or _durable_step(world) >= durable, what="a checkpoint")
        past.documents[step] = Documents.of(world.stores)
        past.bucket[step] = Bucket.of(world.stores, world.stores.run_prefix(RUN))

    with monkeypatch.context() as patched, sampling(TestSampler(world.stores, RUN)):
        patched.setattr(RunStore, "commit_step", backed_up)
        assert world.attempt() == SUCCEEDED
    back_up(STEPS)
    return past


def _durable_step(world: World) -> int:
    durable = world.run.durable
    return durable.step if durable is not None else 0


def restore_documents(world: World, backup: Documents) -> None:
    """Restore them; the claims in them have ended, as in any backup that is older than a lease."""
    backup.restore(world.stores)
    tasks = world.stores.tasks
    for queue in (Queue.TRAIN, Queue.EVALUATION):
        for task in tasks.find(RUN, queue=queue, state=TaskState.CLAIMED):
            assert tasks.hand_back(task, reason="restored", cause=Cause.STOPPED)


def goes_on(world: World, *, kept: bool = True) -> list[Notice]:
    """Train to the end; what the run says of its start. ``kept``: all batches are there."""
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == SUCCEEDED
    assert (world.outcome.kind, world.run.step) == ("Succeeded", STEPS)
    if kept:
        world.check_lineage()
    assert world.report()["notices"] == [notice.model_dump() for notice in world.run.notices]
    return world.run.notices


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(steps=STEPS, checkpoint={"everySteps": 2, "keepLast": 1})


@pytest.mark.soak
def test_an_older_document_store_goes_on_from_its_time_under_new_numbers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = trained(world, monkeypatch)
    before = world.run
    restore_documents(world, past.documents[3])
    restored = world.run
    notices = goes_on(world)
    assert [notice.reason for notice in notices] == ["DocumentStoreRestored", "CheckpointMissing"]
    assert f"knows step 3 and policy version {restored.last_version}, but" in notices[0].message
    assert f"a checkpoint of step {STEPS} exist" in notices[0].message
    assert "goes on from the model that it began with" in notices[1].message
    after = world.run
    assert restored.epoch == before.epoch
    assert after.epoch > before.epoch
    assert {record.version for record in world.stores.policies.of_run(RUN)}.isdisjoint(
        range(restored.last_version + 1, before.last_version + 1)
    ), "a version of the lost time was published again"


@pytest.mark.soak
def test_a_run_older_than_its_bucket_names_the_missing_checkpoint(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batches are gone, too: only another backup can help."""
    kept = {"retention": {"batches": {"maxCount": 2}, "rollouts": {"maxCount": 8}}}
    values = world.spec.model_dump(by_alias=True) | {"lifecycle": kept}
    world.spec = world.spec.model_validate(values)
    world.write_mounts()
    past = trained(world, monkeypatch)
    restore_documents(world, past.documents[5])
    assert world.run.durable is not None
    assert world.run.durable.step == 4
    assert world.attempt() == REFUSED
    outcome = world.outcome
    assert outcome.reason == "CheckpointMissing"
    assert outcome.value == world.stores.objects.uri(world.run.durable.prefix)
    assert "its checkpoint of step 4 is not in the bucket" in outcome.message
    assert "Checkpoints in the bucket: 6." in outcome.message
    assert "{mode: From, uri: s3://" in outcome.remedy
    past.bucket[5].restore(world.stores)
    goes_on(world, kept=False)


@pytest.mark.soak
def test_a_bucket_older_than_its_run_goes_on_from_an_older_checkpoint(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = trained(world, monkeypatch)
    restore_documents(world, past.documents[5])
    past.bucket[3].restore(world.stores)
    (notice,) = goes_on(world)
    assert notice.reason == "CheckpointMissing"
    assert "The checkpoint of step 4" in notice.message
    assert "goes on from the checkpoint of step 2" in notice.message
    assert "up to step 5 are trained again, and none of these steps is lost" in notice.message


@pytest.mark.soak
def test_a_checkpoint_of_the_lost_time_is_not_taken_for_an_older_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has trained its step 4 again: the checkpoint of the first step 4 is of other data."""
    past = trained(world, monkeypatch)
    restore_documents(world, past.documents[3])
    goes_on(world)
    past.bucket[5].restore(world.stores)
    run = world.run.model_copy(update={"outcome": None})
    world.stores.mongo.collection("runs").replace_one({"_id": RUN}, run.to_mongo())
    notices = goes_on(world)
    assert "The checkpoint of step 6" in notices[-1].message
    assert "goes on from the checkpoint of step 4" not in notices[-1].message


@pytest.mark.soak
def test_stores_of_one_earlier_time_go_on_from_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = trained(world, monkeypatch)
    before = world.run
    restore_documents(world, past.documents[3])
    past.bucket[3].restore(world.stores)
    lives = a_sampler("lives", run=RUN, version=before.last_version + 1)
    world.stores.samplers.put([lives])
    (notice,) = goes_on(world)
    assert notice.reason == "DocumentStoreRestored"
    assert world.run.policy is not None
    assert world.run.policy.version > lives.version


def test_a_run_without_its_documents_does_not_begin_again_in_silence(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = trained(world, monkeypatch)
    NO_DOCUMENTS.restore(world.stores)
    for _ in range(2):
        assert world.attempt() == REFUSED
        outcome = world.outcome
        assert outcome.reason == "RunLost"
        assert f"has no step of run {RUN}, but the bucket has its checkpoint" in outcome.message
        assert f"of step {STEPS}, s3://" in outcome.message
    restore_documents(world, past.documents[5])
    goes_on(world)


def test_a_job_that_was_created_again_names_the_run_that_it_does_not_continue(
    make_world: MakeWorld,
) -> None:
    """Its UID is another one, so its run is, too."""
    world = make_world(steps=1)
    left, other = (a_run(id=name, job=job, step=3) for name, job in (("a", "sums"), ("b", "x")))
    for run in (left, other):
        world.stores.runs.create(run)
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == SUCCEEDED
    (notice,) = world.run.notices
    assert notice.reason == "EarlierRunNotContinued"
    assert "RLJob sums, a, with 3 steps" in notice.message
    assert "spec.runId: a" in notice.message
