from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from rl_trainer import optimizer
from rl_trainer.errors import TrainingFailedError
from rl_trainer.learner import Learner
from rl_trainer.samples import Sample
from tests.unit.rl_trainer.conftest import MakeLearner, MakeSamples


def weights(learner: Learner) -> dict[str, Tensor]:
    return {name: one.detach().clone() for name, one in learner.parameters.items()}


def gradients(learner: Learner) -> dict[str, Tensor]:
    found = {}
    for name, one in learner.parameters.items():
        assert one.grad is not None
        found[name] = one.grad.clone()
    return found


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def budget(tokens: int) -> dict[str, dict[str, int]]:
    return {"training": {"maxTokensPerMicrobatch": tokens}}


def test_accumulation_changes_neither_loss_nor_gradient(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    samples = make_samples([3, 9, 5, 12, 7, 4, 16, 6])
    once, often = make_learner(**budget(4096)), make_learner(**budget(16))
    large, small = once.update(samples, step=1), often.update(samples, step=1)
    assert small.loss == pytest.approx(large.loss, abs=1e-6)
    assert small.gradient_norm == pytest.approx(large.gradient_norm, rel=1e-5)
    assert small.gap.total == pytest.approx(large.gap.total, rel=1e-5)
    for name, gradient in gradients(once).items():
        assert torch.allclose(gradients(often)[name], gradient, atol=1e-7), name


def test_tokens_outside_the_mask_do_not_matter(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    samples = make_samples()
    noisy = [
        dataclasses.replace(one, logprobs=torch.where(one.mask, one.logprobs, torch.tensor(9.0)))
        for one in samples
    ]
    one, other = make_learner(), make_learner()
    assert one.update(samples, step=1).loss == other.update(noisy, step=1).loss
    assert same(weights(one), weights(other))


def test_loss_is_the_mean_over_all_generated_tokens(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner, samples = make_learner(), make_samples()
    learner.policy.module.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for one in samples:
            logits = learner.policy.module(input_ids=one.tokens[None]).logits[0]
            chosen = logits[:-1].log_softmax(-1).gather(-1, one.tokens[1:, None])[:, 0]
            ratio = (chosen - one.logprobs[1:])[one.mask[1:]].exp()
            held = ratio.clamp(0.8, 1.2)
            total -= float(torch.minimum(ratio * one.advantage, held * one.advantage).sum())
            count += one.num_generated
    assert learner.update(samples, step=1).loss == pytest.approx(total / count, abs=1e-5)


def test_the_update_raises_what_did_better_than_its_group(make_learner: MakeLearner) -> None:
    learner = make_learner(training={"optimizer": {"learningRate": 1e-2}})
    pair = [sample([12, 3, 14, 5, 11], advantage=1.0), sample([12, 3, 14, 6, 11], advantage=-1.0)]
    before = [score(learner, one) for one in pair]
    pair = [
        dataclasses.replace(one, logprobs=logprobs)
        for one, logprobs in zip(pair, before, strict=True)
    ]
    update = learner.update(pair, step=1)
    after = [score(learner, one) for one in pair]
    assert update.gap.largest < 1e-5
    assert update.clip_fraction == 0
    assert after[0][3] > before[0][3]
    assert after[1][3] < before[1][3]


def sample(tokens: list[int], *, advantage: float) -> Sample:
    mask = torch.tensor([False, False, False, True, True])
    return Sample(
        tokens=torch.tensor(tokens),
        mask=mask,
        logprobs=torch.zeros(len(tokens)),
        temperature=1.0,
        advantage=advantage,
    )


def score(learner: Learner, one: Sample) -> Tensor:
    """Log-probability of each token, 0 at the first."""
    learner.policy.module.eval()
    with torch.no_grad():
        logits = learner.policy.module(input_ids=one.tokens[None]).logits[0]
    learner.policy.module.train()
    chosen = logits[:-1].log_softmax(-1).gather(-1, one.tokens[1:, None])[:, 0]
    return torch.cat([torch.zeros(1), chosen])


def test_the_same_batches_give_the_same_weights_bit_for_bit(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    one, other = make_learner(), make_learner()
    for step in range(1, 4):
        samples = make_samples(seed=step)
        one.update(samples, step=step)
        other.update(samples, step=step)
    assert same(weights(one), weights(other))


def test_a_restored_optimizer_goes_on_bit_for_bit(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    one, other = make_learner(), make_learner()
    one.update(make_samples(seed=1), step=1)
    with torch.no_grad():
        for name, parameter in other.parameters.items():
            parameter.copy_(one.parameters[name])
    optimizer.restore(
        other.optimizer, other.parameters, optimizer.state(one.optimizer, one.parameters)
    )
    for learner in (one, other):
        learner.update(make_samples(seed=2), step=2)
    assert same(weights(one), weights(other))


@pytest.mark.parametrize("field", ["advantage", "logprobs"])
def test_what_is_not_finite_stops_before_the_optimizer(
    field: str, make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner, samples = make_learner(), make_samples()
    before = weights(learner)
    spoiled = {
        "advantage": float("inf"),
        "logprobs": torch.full_like(samples[2].logprobs, float("nan")),
    }[field]
    samples[2] = dataclasses.replace(samples[2], **{field: spoiled})  # type: ignore[arg-type]
    with pytest.raises(TrainingFailedError, match="Step 7 was not made") as caught:
        learner.update(samples, step=7)
    assert caught.value.reason == "NotFinite"
    assert same(weights(learner), before)
    assert not optimizer.state(learner.optimizer, learner.parameters)


def test_scoring_measures_the_gap_and_changes_nothing(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner, samples = make_learner(**budget(16)), make_samples()
    before = weights(learner)
    exact = [
        dataclasses.replace(one, logprobs=score(learner, one) + 0.25 * (number == 0))
        for number, one in enumerate(samples)
    ]
    gap = learner.score(exact, temperature=1.0)
    first, total = exact[0].num_generated, sum(one.num_generated for one in exact)
    assert gap.tokens == total
    assert gap.largest == pytest.approx(0.25, abs=1e-5)
    assert gap.mean == pytest.approx(0.25 * first / total, abs=1e-5)
    assert same(weights(learner), before)


def test_a_gap_that_is_no_number_stays_none(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner, samples = make_learner(**budget(16)), make_samples()
    spoiled = torch.full_like(samples[0].logprobs, float("nan"))
    samples[0] = dataclasses.replace(samples[0], logprobs=spoiled)
    gap = learner.score(samples, temperature=1.0)
    assert gap.mean != gap.mean
    assert gap.largest != gap.largest
