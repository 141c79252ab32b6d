"""An episode's turns train in one sequence as they would in one each."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_trainer.algorithm import objective
from rl_trainer.algorithm.samples import Sample
from rl_trainer.model import model_outputs
from rl_trainer.model.accumulate import accumulate
from rl_trainer.model.learner import Learner
from tests.models.unmerged import by_turns, turns_of
from tests.unit.rl_trainer.compared import gradients
from tests.unit.rl_trainer.conftest import MakeLearner, MakeSamples

ALGORITHMS: list[dict[str, Any]] = [
    {},
    {"loss": {"kind": "CISPO"}},
    {"loss": {"kind": "DPPOTV"}},
    {"loss": {"kind": "SAPO", "aggregation": "TokenMean"}},
    {"loss": {"kind": "DecoupledPPO"}, "offPolicy": {"correction": {"kind": "None"}}},
    {"offPolicy": {"correction": {"kind": "TIS"}}, "kl": {"coefficient": 0.3}},
    {"kl": {"estimator": "Full", "coefficient": 0.5}, "entropyCoefficient": 0.1},
    {"objective": "SFT"},
]


def several_turns(samples: list[Sample]) -> list[Sample]:
    """With an advantage of its own for each token."""
    generator = torch.Generator().manual_seed(1)
    return [
        dataclasses.replace(
            sample, token_advantages=torch.randn(sample.num_generated, generator=generator)
        )
        for sample in samples
    ]


def trained(learner: Learner, given: list[Sample]) -> tuple[float, dict[str, Tensor]]:
    """Loss, and gradients of all parameters."""
    samples = model_outputs.annotated(learner.models, given, proximal=True)
    counts = [sample.num_generated for sample in samples]
    denominator = objective.denominator(counts, learner.models.algorithm)
    terms = [
        term
        for packed in learner.models.microbatches(samples)
        for term in accumulate(
            learner.models,
            packed,
            step=1,
            denominator=denominator,
            kl_coefficient=learner.controls.kl_coefficient,
        )
    ]
    return sum(float(term.total) for term in terms) / denominator, gradients(learner)


@pytest.mark.parametrize("budget", [40, 4000])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_the_merged_loss_is_the_sum_of_the_unmerged(
    algorithm: dict[str, Any], budget: int, make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    merged = several_turns(make_samples((12, 31, 20, 7, 26)))
    unmerged = [turn for sample in merged for turn in by_turns(sample)]
    assert len(unmerged) == sum(len(turns_of(sample)) for sample in merged) > 3 * len(merged)
    assert sum(map(len, unmerged)) > 2 * sum(map(len, merged))
    sections = {"algorithm": algorithm, "training": {"maxTokensPerMicrobatch": budget}}
    loss, gradients = trained(make_learner(**sections), merged)
    expected, wanted = trained(make_learner(**sections), unmerged)
    assert loss == pytest.approx(expected, abs=1e-5)
    for name, gradient in wanted.items():
        assert float((gradients[name] - gradient).abs().max()) < 1e-5, name
