from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_trainer.algorithm.samples import Sample
from rl_trainer.model import loading, optimizer
from rl_trainer.model.learner import Learner
from tests.models import states
from tests.models.tiny_model import save_tiny
from tests.unit.rl_trainer.allocation import Allocation
from tests.unit.rl_trainer.compared import same, weights
from tests.unit.rl_trainer.conftest import MakeSamples, MakeSpec

WIDTH = 512
KINDS = ("AdamW", "AdamW8bit")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with matrices of more than 4096 numbers, whose moments have 8 bits if asked for."""
    return save_tiny(tmp_path_factory.mktemp("tiny"), intermediate_size=WIDTH)


def learner(folder: Path, make_spec: MakeSpec, *, offload: bool, kind: str, **more: Any) -> Learner:
    section = {"optimizer": {"kind": kind, "learningRate": 1e-2}, "offloadOptimizer": offload}
    spec = make_spec(training=section, **more)
    return Learner(loading.load(folder, precision="FP32", uri="s3://models/tiny"), spec)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_in_host_memory_change_no_number(
    kind: str, folder: Path, make_spec: MakeSpec, make_samples: MakeSamples
) -> None:
    """Also not through a checkpoint, whichever side it is of."""
    whole, aside = (learner(folder, make_spec, offload=flag, kind=kind) for flag in (False, True))
    for each in (whole, aside):
        for step in (1, 2):
            each.update(make_samples(seed=step), step=step)
    assert same(weights(whole), weights(aside))
    saved = optimizer.state(aside.optimizer, aside.parameters)
    assert same(optimizer.state(whole.optimizer, whole.parameters), saved)
    for offload in (False, True):
        other = learner(folder, make_spec, offload=offload, kind=kind)
        with torch.no_grad():
            for name, parameter in other.parameters.items():
                parameter.copy_(whole.parameters[name])
        optimizer.restore(other.optimizer, other.parameters, states.stored(saved), other.training)
        other.update(make_samples(seed=3), step=3)
        whole_again = learner(folder, make_spec, offload=False, kind=kind)
        for step in (1, 2, 3):
            whole_again.update(make_samples(seed=step), step=step)
        assert same(weights(other), weights(whole_again)), offload


def test_a_critics_moments_are_offloaded_too(
    folder: Path, make_spec: MakeSpec, make_samples: MakeSamples
) -> None:
    algorithm = {"estimator": {"kind": "GAE"}, "critic": {}}
    states = []
    for offload in (False, True):
        trained = learner(folder, make_spec, offload=offload, kind="AdamW", algorithm=algorithm)
        for step in (1, 2):
            samples = make_samples(seed=step)
            trained.update(with_returns(samples), step=step)
        states.append(trained.auxiliary())
    assert same(*states)


def with_returns(samples: list[Sample]) -> list[Sample]:
    return [
        dataclasses.replace(
            sample,
            returns=torch.ones(sample.num_generated),
            token_advantages=torch.ones(sample.num_generated),
        )
        for sample in samples
    ]


@pytest.mark.parametrize("offload", [False, True])
def test_an_offloaded_update_holds_one_parameters_moments(
    offload: bool, folder: Path, make_spec: MakeSpec, make_samples: MakeSamples
) -> None:
    """Copies of moments that an update makes: of the largest parameter at most, and let go."""
    trained = learner(folder, make_spec, offload=offload, kind="AdamW")
    trained.update(make_samples(seed=1), step=1)
    rows = [it for it in trained.parameters.values() if it.shape[-1] == WIDTH]
    largest = max(it.numel() * it.element_size() for it in rows)
    assert len(rows) > 1
    allocation = Allocation(width=WIDTH)
    with allocation:
        optimizer.step(trained.optimizer, trained.training)
    assert allocation.peak == (2 * largest if offload else 0)
    assert allocation.alive == 0


def test_parameters_without_a_gradient_are_left_alone(folder: Path, make_spec: MakeSpec) -> None:
    made = learner(folder, make_spec, offload=True, kind="AdamW")
    groups = made.optimizer.param_groups
    before = weights(made)
    optimizer.step(made.optimizer, made.training)
    assert same(weights(made), before)
    assert not made.optimizer.state
    assert made.optimizer.param_groups is groups
