"""What an attempt begins with: nothing, its own run's state, or another run's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rl_contracts.documents.run import Run
from rl_contracts.spec.algorithm.kl import KL
from rl_trainer.checkpoint import saved
from rl_trainer.model import loading
from rl_trainer.model.learner import Learner
from tests.contract.rl_trainer import world as worlds
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World

NEXT = "33333333-4444"


def resume(world: World, **section: Any) -> None:
    """Change the manifest as a user would: two steps, begun as ``section`` says."""
    training = worlds.training_section(steps=2, checkpoint={"everySteps": 10, "resume": section})
    world.spec = world.spec.model_validate(
        world.spec.model_dump(by_alias=True) | {"training": training}
    )
    world.write_mounts()


def test_a_run_starts_from_another_runs_checkpoint(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(steps=3)
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    pointer, objects = world.run.durable, world.stores.objects
    assert pointer is not None
    monkeypatch.setattr(worlds, "RUN", NEXT)
    penalty = world.spec.algorithm.model_copy(update={"kl": KL(coefficient=0.5)})
    world.spec = world.spec.model_copy(update={"algorithm": penalty})
    resume(world, mode="From", uri=objects.uri(pointer.prefix))
    with sampling(TestSampler(world.stores, NEXT)):
        assert world.attempt() == 0
    assert world.run.step == 2
    batches = world.stores.batches.lineage(world.run.head_batch)
    assert [batch.step for batch in batches] == [1, 2]
    metrics = [batch.metrics for batch in batches]
    assert [step.kl_coefficient for step in metrics if step is not None] == [0.5, 0.5]
    policy = loading.load(world.folder / "model", precision="FP32", uri=world.spec.model.uri)
    learner = Learner(policy, world.spec)
    restored = saved.read(objects, pointer.prefix, manifest_sha256=pointer.manifest_sha256)
    assert restored.state.step == 3
    saved.put_back(restored, learner)
    for batch in batches:
        learner.update(world.samples(batch), step=batch.step)
    final = world.final_weights()
    assert all(
        torch.equal(parameter, final[name]) for name, parameter in learner.parameters.items()
    )


def test_never_refuses_a_run_that_has_steps(make_world: MakeWorld) -> None:
    world = make_world()
    world.stores.runs.create(
        Run(id=RUN, namespace="ns", job="sums", created_at=0.0, steps=8, step=2)
    )
    resume(world, mode="Never")
    assert world.attempt() == 2
    outcome = world.outcome
    assert outcome.field == "spec.training.checkpoint.resume.mode"
    assert outcome.reason == "RunHasSteps"
    assert world.run.step == 2


def test_never_takes_a_run_without_steps(make_world: MakeWorld) -> None:
    world = make_world()
    resume(world, mode="Never")
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    world.check_lineage()


@pytest.mark.parametrize(
    ("folder", "reason", "words"),
    [
        ("nothing/", "CheckpointNotFound", "does not exist"),
        ("model/", "CheckpointNotFound", "does not exist"),
        ("no-manifest/", "CheckpointUnusable", "not a manifest"),
        ("policy/", "CheckpointUnusable", "holds a policy, no checkpoint"),
    ],
)
def test_a_folder_without_checkpoint_is_refused(
    folder: str, reason: str, words: str, make_world: MakeWorld
) -> None:
    world = make_world()
    objects = world.stores.objects
    manifest = '{"kind":"policy","run":"r","epoch":1,"step":1,"files":[]}'
    for name, text in (("no-manifest", "{"), ("policy", manifest)):
        objects.put(f"{objects.prefix}{name}/manifest.json", text.encode())
    resume(world, mode="From", uri=objects.uri(f"{objects.prefix}{folder}"))
    assert world.attempt() == 2
    outcome = world.outcome
    assert outcome.field == "spec.training.checkpoint.resume.uri"
    assert outcome.reason == reason
    assert words in outcome.message
