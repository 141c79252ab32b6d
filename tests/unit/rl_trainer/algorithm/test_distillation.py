"""A teacher's distributions instead of rewards, against the definition in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_trainer.algorithm import credit, objective
from rl_trainer.algorithm.assessment import Context
from rl_trainer.algorithm.samples import Sample
from rl_trainer.model import loading
from rl_trainer.model.accumulate import accumulate
from rl_trainer.model.learner import Learner
from rl_trainer.model.policy import Policy
from tests.models.tiny_model import save_tiny
from tests.samples.documents import a_head, a_task
from tests.unit.rl_trainer.conftest import MakeSamples, MakeSpec

TEMPERATURE = 0.7


@pytest.fixture
def teacher(tmp_path: Path) -> Policy:
    """Of the same tokens and another size."""
    folder = save_tiny(tmp_path / "teacher", seed=3, num_hidden_layers=1, intermediate_size=32)
    return loading.load(folder, precision="FP32", uri="s3://models/teacher")


@pytest.fixture
def learner(teacher: Policy, tiny_folder: Path, make_spec: MakeSpec) -> Learner:
    spec = make_spec(
        algorithm={"objective": "Distillation", "teacher": "s3://models/teacher"},
        agent={"sampling": {"temperature": TEMPERATURE}},
        training={"maxTokensPerMicrobatch": 24, "optimizer": {"learningRate": 1e-2}},
    )
    student = loading.load(tiny_folder, precision="FP32", uri="s3://models/tiny")
    return Learner(student, spec, teacher=teacher)


def divergence(student: Any, teacher: Any, samples: list[Sample]) -> Tensor:
    """Mean over the generated tokens of Σ_v π(v) (log π(v) - log teacher(v)), float64."""
    parts = []
    for sample in samples:
        places = sample.mask[1:]
        ours, theirs = (
            (each(sample.tokens[None]).logits[0, :-1].double() / TEMPERATURE).log_softmax(-1)[
                places
            ]
            for each in (student, teacher)
        )
        parts.append((ours.exp() * (ours - theirs.detach())).sum(-1))
    return torch.cat(parts).mean()


def test_loss_and_gradient_are_those_of_the_reverse_divergence(
    learner: Learner, teacher: Policy, make_samples: MakeSamples
) -> None:
    samples = make_samples()
    parameters = learner.policy.parameters()
    wanted = divergence(learner.policy.module, teacher.module, samples)
    gradients = torch.autograd.grad(wanted, list(parameters.values()))
    denominator = objective.denominator(
        [sample.num_generated for sample in samples], learner.models.algorithm
    )
    total = 0.0
    for packed in learner.models.microbatches(samples):
        terms = accumulate(
            learner.models, packed, step=1, denominator=denominator, kl_coefficient=1.0
        )
        total += sum(float(term.total) for term in terms)
    assert total / denominator == pytest.approx(float(wanted.detach()), abs=1e-6)
    for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        assert parameter.grad is not None, name
        assert float((parameter.grad - gradient).abs().max()) < 1e-6, name


def test_distillation_ignores_rewards_and_sampler_logprobs(
    learner: Learner, make_samples: MakeSamples
) -> None:
    group = [a_head(a_task(0, attempt=1), number, reward=number) for number in range(2)]
    members = credit.members([group], learner.models.algorithm, Context())
    assert [member.advantage for member in members] == [0.0, 0.0]
    update = learner.update(make_samples(), step=1)
    assert update.loss == pytest.approx(update.kl)
    assert update.kl_coefficient == 1.0


def test_distillation_moves_the_student_and_not_the_teacher(
    learner: Learner, teacher: Policy, make_samples: MakeSamples
) -> None:
    samples = make_samples()
    before = {name: parameter.clone() for name, parameter in teacher.parameters().items()}
    losses = [learner.update(samples, step=step).loss for step in range(1, 9)]
    assert losses[-1] < 0.5 * losses[0]
    assert all(
        torch.equal(parameter, before[name]) for name, parameter in teacher.parameters().items()
    )
    assert learner.models.reference is not None
    kept = learner.models.reference.policy.parameters()
    assert all(torch.equal(tensor, before[name]) for name, tensor in kept.items())
    assert learner.auxiliary() == {}


def test_distillation_uses_the_full_divergence() -> None:
    section = Algorithm.model_validate({"objective": "Distillation", "teacher": "s3://abc/t"})
    assert section.divergence is not None
    assert (section.divergence.estimator, section.divergence.coefficient) == ("Full", 1.0)
    assert section.kl is None
