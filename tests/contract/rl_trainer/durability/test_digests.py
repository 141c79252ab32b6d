"""What was trained is what is trained again, or nothing is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents import trained
from rl_contracts.documents.arrays import pack_int32, unpack_int32
from rl_contracts.documents.batch import (
    FIRST_TRAINED_FORMAT,
    TRAINED_FORMAT,
    Batch,
    TrainedDigest,
)
from rl_contracts.documents.head import SUMMARY
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.models.tiny_model import save_tiny
from tests.servers import ROOT
from tests.waiting import HUNG_SECONDS, until


@pytest.fixture
def interrupted(make_world: MakeWorld) -> World:
    """A run whose trainer was killed after a few steps, none of them durable."""
    world = make_world(steps=5, checkpoint={"everySteps": 100})
    with sampling(TestSampler(world.stores, RUN, rest_at=2)):
        process = world.forked()
        until(world.at_step(2), what="step 2")
        process.kill()
        process.join(HUNG_SECONDS)
    return world


def rebuilt(world: World, batch: Batch) -> str:
    rollouts = world.stores.rollouts.get([member.rollout for member in batch.members])
    return trained.rebuilt_digest(trained.sequences(batch, rollouts), like=batch.digest).sha256


def test_a_run_whose_model_was_replaced_is_refused(interrupted: World, tmp_path: Path) -> None:
    """Another model of the same shape: only its bytes tell."""
    objects, before = interrupted.stores.objects, interrupted.run
    key = f"{objects.prefix}model/model.safetensors"
    objects.put_file(key, save_tiny(tmp_path / "other", seed=7) / "model.safetensors")
    assert interrupted.attempt() == 2
    outcome = interrupted.outcome
    assert (outcome.reason, outcome.field) == ("ModelChanged", "spec.model.uri")
    assert "Put the former files back" in outcome.remedy
    assert (interrupted.run.step, interrupted.run.models) == (before.step, before.models)

    objects.put_file(key, interrupted.folder / "model" / "model.safetensors")
    interrupted.stores.runs.record_models(RUN, epoch=interrupted.run.epoch, models={})
    with sampling(TestSampler(interrupted.stores, RUN)):
        assert interrupted.attempt() == 0
    assert interrupted.run.models == before.models, "a run of an earlier release records it"


def test_a_run_whose_model_was_replaced_before_its_first_step_is_refused_once_it_is_sampled(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    """Rollouts of the former model may wait in its queue."""
    world = make_world(steps=1)
    key = f"{world.stores.objects.prefix}model/model.safetensors"
    other = save_tiny(tmp_path / "other", seed=7) / "model.safetensors"
    process = world.forked()
    runs = world.stores.runs
    until(lambda: (run := runs.get(RUN)) is not None and run.policy, what="the first policy")
    process.kill()
    process.join(HUNG_SECONDS)
    assert world.run.step == 0
    world.stores.objects.put_file(key, other)
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 2
    assert (world.outcome.reason, world.outcome.field) == ("ModelChanged", "spec.model.uri")


@pytest.mark.soak
def test_a_replay_with_changed_data_is_refused(interrupted: World) -> None:
    stores, before = interrupted.stores, interrupted.run
    (batch, *_) = stores.batches.lineage(before.head_batch)
    (rollout,) = stores.rollouts.get([batch.members[3].rollout]).values()
    tokens = unpack_int32(rollout.tokens)
    tokens[-1] = (tokens[-1] + 1) % 8
    stores.rollouts.put([rollout.model_copy(update={"tokens": pack_int32(tokens)})])
    assert interrupted.attempt() == 1
    outcome = interrupted.outcome
    assert (outcome.kind, outcome.reason) == ("Failed", "StoredDataCorrupt")
    assert batch.digest is not None
    assert batch.digest.sha256 in outcome.message
    assert rebuilt(interrupted, batch) in outcome.message
    after = interrupted.run
    assert (after.step, after.head_batch, after.policy) == (
        before.step,
        before.head_batch,
        before.policy,
    )

    stores.rollouts.put([rollout])
    with sampling(TestSampler(stores, RUN)):
        assert interrupted.attempt() == 0
    batches = stores.batches.lineage(interrupted.run.head_batch)
    epochs = sorted({batch.epoch for batch in batches})
    assert epochs == [before.epoch, interrupted.run.epoch]
    assert interrupted.run.trainers == 3
    for batch in batches:
        assert batch.digest is not None
        assert rebuilt(interrupted, batch) == batch.digest.sha256
        assert batch.digest.sequences == len(batch.members) == 16
    report = audit(interrupted, "run")
    assert report["good"], report["findings"]
    assert [(piece["firstStep"], piece["epoch"]) for piece in report["lineage"]] == [
        (1, epochs[0]),
        (before.step + 1, epochs[1]),
    ]
    report = audit(interrupted, "batch", "--step", str(before.step + 1))
    assert report["digest"]["verdict"] == "match"
    assert len(report["sequences"]) == 16


def test_a_change_behind_the_back_of_a_summary_is_refused(interrupted: World) -> None:
    stores, before = interrupted.stores, interrupted.run
    (batch, *_) = stores.batches.lineage(before.head_batch)
    name = batch.members[3].rollout
    (rollout,) = stores.rollouts.get([name]).values()
    logprobs = rollout.logprobs[:-1] + bytes([rollout.logprobs[-1] ^ 1])
    stored = stores.mongo.collection("rollouts")
    stored.update_one({"_id": name}, {"$set": {"logprobs": logprobs}})
    assert interrupted.attempt() == 1
    outcome = interrupted.outcome
    assert (outcome.kind, outcome.reason) == ("Failed", "StoredDataCorrupt")
    assert batch.digest is not None
    assert batch.digest.sha256 in outcome.message
    assert (interrupted.run.step, interrupted.run.head_batch) == (before.step, before.head_batch)


@pytest.mark.soak
def test_a_run_of_an_earlier_release_is_replayed(interrupted: World) -> None:
    """Its rollouts have no summaries, and its digests are of all tensors of a batch."""
    stores, before = interrupted.stores, interrupted.run
    first = TrainedDigest(
        format=FIRST_TRAINED_FORMAT, sha256="", sequences=0, tokens=0, generated=0
    )
    older = stores.batches.lineage(before.head_batch)
    for batch in older:
        rollouts = stores.rollouts.get([member.rollout for member in batch.members])
        digest = trained.rebuilt_digest(trained.sequences(batch, rollouts), like=first)
        assert digest.format == FIRST_TRAINED_FORMAT
        stores.batches.put([batch.model_copy(update={"digest": digest})])
    stores.mongo.collection("rollouts").update_many({}, {"$unset": {SUMMARY: ""}})
    with sampling(TestSampler(stores, RUN)):
        assert interrupted.attempt() == 0
    interrupted.check_lineage()
    formats = [batch.digest.format for batch in lineage(interrupted) if batch.digest is not None]
    newer = [TRAINED_FORMAT] * (len(formats) - len(older))
    assert formats == [*[FIRST_TRAINED_FORMAT] * len(older), *newer]
    for batch in lineage(interrupted):
        assert batch.digest is not None
        assert rebuilt(interrupted, batch) == batch.digest.sha256


def lineage(world: World) -> list[Batch]:
    return world.stores.batches.lineage(world.run.head_batch)


def audit(world: World, *arguments: str) -> Any:
    """The command as a person types it in a pod, with the contracts alone."""
    done = subprocess.run(
        [sys.executable, "-m", "rl_contracts.audit", *arguments, "--json"],
        env=os.environ | world.environment | {"PYTHONPATH": str(ROOT / "contracts")},
        capture_output=True,
        text=True,
        timeout=HUNG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)
