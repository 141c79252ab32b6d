"""Trainers that die, are replaced or told to stop: nothing is lost, nothing is trained twice."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rl_contracts import env
from rl_contracts.documents.batch import Batch
from rl_contracts.documents.run import Holder, Run
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.errors import ObjectMissingError
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_trainer import step
from rl_trainer.algorithm import groups
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.durability.crash import (
    Crashed,
    crashing_after,
    crashing_at,
    reaching,
)
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.examples import first
from tests.network.mongo_front import front_before
from tests.samples.documents import a_run
from tests.servers import (
    MinioServer,
    Server,
    StoreServer,
    running_minio,
    running_store,
    settings_of,
)
from tests.waiting import HUNG_SECONDS, until


@contextmanager
def outage(server: Server) -> Iterator[None]:
    """The server is dead at first and comes back after a second."""
    server.kill()
    restart = threading.Timer(1.0, server.start)
    restart.start()
    try:
        yield
    finally:
        restart.join()


def test_crashes_between_any_two_commands_lose_nothing(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same crashes each time; the soak draws others."""
    check_crashes(1, make_world, monkeypatch)


def check_crashes(seed: int, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(steps=6, checkpoint={"everySteps": 2}, evaluation={"everySteps": 3})
    draw = random.Random(seed)
    crashes, heads = 0, []
    with sampling(TestSampler(world.stores, RUN)):
        while crashes < 12:
            try:
                with crashing_after(draw.randint(10, 150), monkeypatch):
                    assert world.attempt() == 0
                break
            except Crashed:
                crashes += 1
            run = world.stores.runs.get(RUN)
            if run is not None:
                heads.append(run.step)
        else:
            assert world.attempt() == 0
    assert crashes >= 1  # a whole run takes more commands than a fuse holds
    assert heads == sorted(heads), "a committed step was taken back"
    assert world.run.trainers <= crashes + 1
    assert world.outcome.kind == "Succeeded"
    assert sorted({evaluation.step for evaluation in world.evaluations}) == [0, 3, 6]
    assert len(world.evaluations) == 3
    assert len(world.newest("metrics.jsonl").splitlines()) == 6
    world.check_lineage()


@pytest.mark.soak
def test_a_killed_process_is_replaced_and_replays(make_world: MakeWorld) -> None:
    world = make_world(steps=12, checkpoint={"everySteps": 5})
    sampler = TestSampler(world.stores, RUN, rest_at=8)
    with sampling(sampler):
        process = world.forked()
        killed = until(world.at_step(8), what="step 8")
        process.kill()
        process.join(HUNG_SECONDS)
        assert process.exitcode == -signal.SIGKILL
        before = committed(world.stores)
        sampler.rest_at = 0
        assert world.attempt() == 0
    assert killed.trainers == 1
    assert world.run.trainers == 2
    after = committed(world.stores)
    assert after[: len(before)] == before, "a committed batch was replaced"
    assert world.report()["restarts"] == 1
    world.check_lineage()


def committed(stores: Stores) -> list[tuple[str, list[str]]]:
    run = stores.runs.get(RUN)
    assert run is not None
    lineage: list[Batch] = stores.batches.lineage(run.head_batch)
    return [(batch.id, batch.tasks) for batch in lineage]


def test_sigterm_stops_at_a_safe_point_and_the_next_attempt_resumes(make_world: MakeWorld) -> None:
    world = make_world(steps=10, checkpoint={"everySteps": 100})
    sampler = TestSampler(world.stores, RUN, rest_at=2)
    with sampling(sampler):
        process = world.forked()
        until(world.at_step(2), what="step 2")
        process.terminate()
        process.join(HUNG_SECONDS)
        assert process.exitcode == 143
        stopped = world.run
        assert stopped.outcome is None
        sampler.rest_at = 0
        assert world.attempt() == 0
    assert stopped.step >= 2
    assert stopped.durable is not None
    assert stopped.durable.step == stopped.step  # though a checkpoint was not due for long
    assert world.run.step == 10
    world.check_lineage()


@pytest.mark.soak
def test_sigterm_checkpoints_replayed_steps(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often attempts are stopped early, they come to the head in the end."""
    world = make_world(steps=8, checkpoint={"everySteps": 100})
    with sampling(TestSampler(world.stores, RUN)):
        with pytest.raises(Crashed), crashing_at("training: step 6", monkeypatch):
            world.attempt()
        assert (world.run.step, world.run.durable) == (5, None)
        with pytest.raises(ObjectMissingError):
            world.newest("metrics.jsonl")
        for step in (2, 4):
            terminated = threading.Event()
            with reaching(f"replaying: step {step}", terminated.set, monkeypatch):
                assert world.attempt(terminated) == 143
            stopped = world.run
            assert stopped.durable is not None
            assert (stopped.step, stopped.durable.step) == (5, step)
            with pytest.raises(ObjectMissingError):  # what is there is never replaced by less
                world.newest("metrics.jsonl")
        assert world.attempt() == 0
    lines = world.newest("metrics.jsonl").splitlines()
    metrics = [StepMetrics.model_validate_json(line) for line in lines]
    replayed = [True, True, True, True, True, False, False, False]
    assert [step.replayed for step in metrics] == replayed
    assert world.run.totals.rollouts_trained == sum(len(step) for step in world.trained())
    # Replayed steps are counted as they were first made.
    first = [batch.metrics for batch in world.stores.batches.lineage(world.run.head_batch)]
    assert [(step.seconds, step.drops, step.policy_version) for step in metrics] == [
        (step.seconds, step.drops, step.policy_version) for step in first if step is not None
    ]
    for name in ("wait_seconds", "train_seconds"):
        summed = sum(getattr(step, name) for step in metrics)
        assert summed == pytest.approx(getattr(world.run.totals, name))
    world.check_lineage()


@pytest.mark.soak
def test_a_suspended_run_goes_on_to_a_raised_number_of_steps(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(steps=3)
    with sampling(TestSampler(world.stores, RUN)):
        terminated = threading.Event()
        with reaching("training: step 3", terminated.set, monkeypatch):
            assert world.attempt(terminated) == 143
        raised = world.spec.training.model_copy(update={"steps": 6})
        world.spec = world.spec.model_copy(update={"training": raised})
        world.write_mounts()
        assert world.attempt() == 0
    assert (world.run.step, world.run.steps) == (6, 6)
    world.check_lineage()


@pytest.mark.parametrize("critic", first(1, [False, True]), ids=["policy", "critic"])
def test_steps_are_trained_again_at_their_first_rates_after_steps_was_raised(
    critic: bool, make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer = {"learningRate": 0.01, "schedule": "Linear"}
    world = make_world(steps=4, checkpoint={"everySteps": 100}, optimizer=optimizer)
    values = world.spec.model_dump(by_alias=True)
    if critic:
        valued = {"estimator": {"kind": "GAE"}, "critic": {"learningRate": 0.02}}
        values["algorithm"] = {"groupSize": 4, "offPolicy": {"maxStaleness": 2}} | valued
    with sampling(TestSampler(world.stores, RUN)):
        with pytest.raises(Crashed), crashing_at("training: step 3", monkeypatch):
            attempt(world, values)
        values["training"]["steps"] = 8
        assert attempt(world, values) == 0
    lines = world.newest("metrics.jsonl").splitlines()
    again = [StepMetrics.model_validate_json(line) for line in lines]
    assert [step.replayed for step in again] == [True] * 2 + [False] * 6
    left = [1 - step / steps for step, steps in enumerate([4, 4] + [8] * 6, start=1)]
    assert [step.learning_rate for step in again] == [0.01 * share for share in left]
    assert [step.critic_learning_rate for step in again] == [
        0.02 * share if critic else None for share in left
    ]
    world.check_lineage()


def attempt(world: World, values: dict[str, Any]) -> int:
    """An attempt with another manifest; its exit code."""
    world.spec = world.spec.model_validate(values)
    world.write_mounts()
    return world.attempt()


@pytest.mark.soak
def test_a_batch_beyond_sixteen_mebibytes_is_trained_and_replayed(
    stores: Stores,
    store_settings: StoreSettings,
    store_server: StoreServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever makes a batch that large: here the names of rollouts that nothing reads.

    The front refuses what MongoDB refuses.
    """
    form = groups.form
    names = ["x" * 99] * 170_000

    def wide(*given: Any, **named: Any) -> Batch:
        return form(*given, **named).model_copy(update={"baselines": names})

    monkeypatch.setattr(step, "form", wide)
    with (
        front_before(store_server.uri) as front,
        sampling(TestSampler(stores, RUN)),
    ):
        settings = StoreSettings.from_mapping(store_settings.to_mapping() | front.settings)
        world = World.make(tmp_path, stores, settings, steps=3, checkpoint={"everySteps": 100})
        with pytest.raises(Crashed), crashing_at("training: step 3", monkeypatch):
            world.attempt()
        assert (world.run.step, world.run.durable) == (2, None)
        assert world.attempt() == 0
    assert (world.outcome.kind, world.run.step) == ("Succeeded", 3)
    lines = world.newest("metrics.jsonl").splitlines()
    replayed = [StepMetrics.model_validate_json(line).replayed for line in lines]
    assert replayed == [True, True, False]
    for stored in world.stores.mongo.collection("batches").find():
        assert "baselines" in stored["overflow"]


@pytest.mark.soak
def test_a_trainer_that_was_replaced_stops_and_changes_nothing(make_world: MakeWorld) -> None:
    world = make_world(steps=8)
    sampler = TestSampler(world.stores, RUN, rest_at=2)
    with sampling(sampler), ThreadPoolExecutor(1) as executor:
        old = executor.submit(world.attempt)
        until(world.at_step(2), what="step 2")
        taken = world.stores.runs.take_epoch(RUN)
        assert old.result(timeout=HUNG_SECONDS) == 3
        assert unchanged(taken, world.run)
        sampler.rest_at = 0
        assert world.attempt() == 0
    assert world.run.trainers == 3
    world.check_lineage()


def test_an_older_attempt_that_starts_late_ends_and_changes_nothing(make_world: MakeWorld) -> None:
    world = make_world(steps=2)
    world.stores.runs.create(a_run(id=RUN))
    holder = Holder(job=world.environment[env.JOB_UID], attempt=2)
    taken = world.stores.runs.take_epoch(RUN, holder=holder)
    assert world.attempt() == 4
    assert world.run == taken


def unchanged(before: Run, after: Run) -> bool:
    fields = ("epoch", "step", "head_batch", "policy", "durable", "outcome", "totals")
    return all(getattr(before, field) == getattr(after, field) for field in fields)


@pytest.mark.soak
def test_a_run_survives_restarts_of_both_stores(
    tmp_path: Path, store_server: StoreServer, minio_server: MinioServer
) -> None:
    for name in ("store", "minio", "world"):
        (tmp_path / name).mkdir()
    with (
        running_store(tmp_path / "store") as store,
        running_minio(tmp_path / "minio") as minio,
        ExitStack() as opened,
    ):
        settings = settings_of(store, minio)
        stores = opened.enter_context(
            closing(Stores.connect(settings, patience_seconds=HUNG_SECONDS))
        )
        stores.objects.make_bucket()
        world = World.make(tmp_path / "world", stores, settings, steps=10)
        with sampling(TestSampler(stores, RUN)), ThreadPoolExecutor(1) as executor:
            job = executor.submit(world.attempt)
            for step, server in ((2, store.server), (5, minio.server)):
                until(world.at_step(step), what=f"step {step}")
                with outage(server):
                    pass
            assert job.result(timeout=HUNG_SECONDS) == 0
        assert world.run.trainers == 1
        world.check_lineage()


@pytest.mark.soak
def test_a_lasting_bucket_outage_is_named_in_the_outcome(
    tmp_path: Path, store_server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[Stores] = []

    def connect(settings: StoreSettings, **options: Any) -> Stores:
        connected.append(Stores.connect(settings, **options))
        return connected[-1]

    monkeypatch.setattr("tests.contract.rl_trainer.world.connect", connect)
    monkeypatch.setattr("tests.contract.rl_trainer.world.PATIENCE_SECONDS", 20.0)
    for name in ("minio", "world"):
        (tmp_path / name).mkdir()
    with running_minio(tmp_path / "minio") as minio, ExitStack() as opened:
        settings = settings_of(store_server, minio)
        stores = opened.enter_context(
            closing(Stores.connect(settings, patience_seconds=HUNG_SECONDS))
        )
        stores.objects.make_bucket()
        world = World.make(tmp_path / "world", stores, settings, steps=1000)
        # Without new policies it goes on sampling, until all that it samples is stale.
        content = TestSampler(stores, RUN, hold=1)
        with sampling(content), ThreadPoolExecutor(1) as executor:
            job = executor.submit(world.attempt)
            until(world.at_step(1), what="step 1")
            connected[0].objects._patience = 1.0
            minio.server.kill()
            assert job.result(timeout=HUNG_SECONDS) == 1
        assert (world.outcome.kind, world.outcome.reason) == ("Failed", "StoreUnavailable")
        assert "bucket did not answer while" in world.outcome.message
