"""A run that learns from a teacher: rollouts of the student, no reward."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from rl_contracts.documents.step_metrics import StepMetrics
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.durability.crash import train_over_crashes
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.models.tiny_model import save_tiny


def distilling(make_world: MakeWorld, **teacher: Any) -> World:
    """A run whose teacher has other weights, or is another model."""
    world = make_world(steps=6, optimizer={"learningRate": 1e-2}, checkpoint={"everySteps": 3})
    objects = world.stores.objects
    folder: Path = save_tiny(world.folder / "teacher", seed=5, **teacher)
    for path in folder.iterdir():
        objects.put_file(f"{objects.prefix}teacher/{path.name}", path)
    given = world.spec.model_dump(by_alias=True)
    given["algorithm"] = {
        "objective": "Distillation",
        "teacher": f"s3://{objects.bucket}/{objects.prefix}teacher",
        "groupSize": 2,
    }
    world.spec = world.spec.model_validate(given)
    world.write_mounts()
    return world


def test_distillation_converges_over_crashes(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = distilling(make_world, num_hidden_layers=1)
    with sampling(TestSampler(world.stores, RUN, pause_seconds=0.02)):
        train_over_crashes(world, monkeypatch, first=60, later=60)
    world.check_lineage()
    lines = world.newest("metrics.jsonl").decode().splitlines()
    metrics = [StepMetrics.model_validate_json(line) for line in lines]
    losses = [metric.loss for metric in metrics]
    assert fmean(losses[-2:]) < 0.8 * fmean(losses[:2])
    assert [metric.kl for metric in metrics] == losses


def test_a_teacher_of_other_tokens_is_refused(make_world: MakeWorld) -> None:
    world = distilling(make_world, vocab_size=17)
    assert world.attempt() == 2
    outcome = world.outcome
    assert outcome.reason == "ModelUnusable"
    assert "spec.algorithm.teacher" in outcome.field
    assert "It has 17 tokens, the policy 16" in outcome.message
