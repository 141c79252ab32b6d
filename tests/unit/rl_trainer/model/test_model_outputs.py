from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from tests.unit.rl_trainer.compared import same, score, weights
from tests.unit.rl_trainer.conftest import MakeLearner, MakeSamples, budget

KL: dict[str, Any] = {"coefficient": 0.5}
RATE = {"optimizer": {"learningRate": 1e-2}}


def test_scoring_measures_the_gap_and_changes_nothing(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner, samples = make_learner(**budget(16)), make_samples()
    before = weights(learner)
    exact = [
        dataclasses.replace(sample, logprobs=score(learner, sample) + 0.25 * (number == 0))
        for number, sample in enumerate(samples)
    ]
    gap = learner.score(exact, temperature=1.0)
    first, total = exact[0].num_generated, sum(sample.num_generated for sample in exact)
    assert gap.tokens == total
    assert gap.largest == pytest.approx(0.25, abs=1e-5)
    assert gap.mean == pytest.approx(0.25 * first / total, abs=1e-5)
    assert same(weights(learner), before)


def test_a_nan_gap_stays_nan(make_learner: MakeLearner, make_samples: MakeSamples) -> None:
    learner, samples = make_learner(**budget(16)), make_samples()
    spoiled = torch.full_like(samples[0].logprobs, float("nan"))
    samples[0] = dataclasses.replace(samples[0], logprobs=spoiled)
    gap = learner.score(samples, temperature=1.0)
    assert gap.mean != gap.mean
    assert gap.largest != gap.largest


def test_assessments_hold_what_estimators_need(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    samples = [
        dataclasses.replace(sample, rollout=str(number // 2))
        for number, sample in enumerate(make_samples())
    ]
    assert make_learner().assess(samples) == {}
    assert make_learner(algorithm={"kl": KL}).assess(samples) == {}
    for estimator, second in (("K1", {"estimator": "Full"}), ("Full", {"gradient": "Unbiased"})):
        kl = {
            "placement": "Reward",
            "estimator": estimator,
            "coefficient": 0.5,
            "loss": second,
        }
        learner = make_learner(algorithm={"kl": kl}, training=RATE)
        assessed = learner.assess(samples)
        assert list(assessed) == ["0", "1", "2"]
        divergences = assessed["1"].divergences
        assert divergences is not None
        logprobs = torch.cat([score(learner, sample)[sample.mask] for sample in samples[2:4]])
        sampled = torch.cat([sample.logprobs[sample.mask] for sample in samples[2:4]])
        expected = sampled - logprobs if estimator == "K1" else torch.zeros(len(sampled))
        assert torch.allclose(divergences.float(), expected, atol=1e-5)
        learner.update(samples, step=1)
