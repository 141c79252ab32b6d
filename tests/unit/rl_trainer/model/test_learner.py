from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from rl_trainer.algorithm.minibatches import updates
from rl_trainer.algorithm.samples import Sample
from rl_trainer.errors import TrainingFailedError
from rl_trainer.model import optimizer
from tests.models import states
from tests.unit.rl_trainer.compared import gradients, same, score, weights
from tests.unit.rl_trainer.conftest import MakeLearner, MakeSamples, budget


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


def test_unmasked_tokens_do_not_change_the_loss(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    samples = make_samples()
    noisy = [
        dataclasses.replace(
            sample, logprobs=torch.where(sample.mask, sample.logprobs, torch.tensor(9.0))
        )
        for sample in samples
    ]
    first, other = make_learner(), make_learner()
    assert first.update(samples, step=1).loss == other.update(noisy, step=1).loss
    assert same(weights(first), weights(other))


def test_loss_is_the_mean_over_all_generated_tokens(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner, samples = make_learner(), make_samples()
    learner.policy.module.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for sample in samples:
            logits = learner.policy.module(input_ids=sample.tokens[None]).logits[0]
            chosen = logits[:-1].log_softmax(-1).gather(-1, sample.tokens[1:, None])[:, 0]
            ratio = (chosen - sample.logprobs[1:])[sample.mask[1:]].exp()
            held = ratio.clamp(0.8, 1.2)
            total -= float(torch.minimum(ratio * sample.advantage, held * sample.advantage).sum())
            count += sample.num_generated
    assert learner.update(samples, step=1).loss == pytest.approx(total / count, abs=1e-5)


def test_an_update_raises_the_probability_of_better_rollouts(make_learner: MakeLearner) -> None:
    learner = make_learner(training={"optimizer": {"learningRate": 1e-2}})
    pair = [sample([12, 3, 14, 5, 11], advantage=1.0), sample([12, 3, 14, 6, 11], advantage=-1.0)]
    before = [score(learner, sample) for sample in pair]
    pair = [
        dataclasses.replace(sample, logprobs=logprobs)
        for sample, logprobs in zip(pair, before, strict=True)
    ]
    update = learner.update(pair, step=1)
    after = [score(learner, sample) for sample in pair]
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
        policy_steps=torch.zeros(len(tokens), dtype=torch.int64),
        advantage=advantage,
    )


def test_the_same_batches_give_the_same_weights_bit_for_bit(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    first, other = make_learner(), make_learner()
    for step in range(1, 4):
        samples = make_samples(seed=step)
        first.update(samples, step=step)
        other.update(samples, step=step)
    assert same(weights(first), weights(other))


def test_a_restored_optimizer_goes_on_bit_for_bit(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    first, other = make_learner(), make_learner()
    first.update(make_samples(seed=1), step=1)
    with torch.no_grad():
        for name, parameter in other.parameters.items():
            parameter.copy_(first.parameters[name])
    saved = optimizer.state(first.optimizer, first.parameters)
    optimizer.restore(other.optimizer, other.parameters, states.stored(saved), other.training)
    for learner in (first, other):
        learner.update(make_samples(seed=2), step=2)
    assert same(weights(first), weights(other))


@pytest.mark.parametrize("field", ["advantage", "logprobs"])
def test_a_nonfinite_loss_makes_no_update(
    field: str, make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner, samples = make_learner(), make_samples()
    before = weights(learner)
    spoiled: dict[str, Any] = {
        "advantage": float("inf"),
        "logprobs": torch.full_like(samples[2].logprobs, float("nan")),
    }
    samples[2] = dataclasses.replace(samples[2], **{field: spoiled[field]})
    samples[2] = dataclasses.replace(samples[2], rollout="run1/train/2/0/1")
    with pytest.raises(
        TrainingFailedError, match=r"Step 7 was not made: the loss of rollout run1/train/2/0/1 is"
    ) as caught:
        learner.update(samples, step=7)
    assert caught.value.reason == "NotFinite"
    assert same(weights(learner), before)
    assert not optimizer.state(learner.optimizer, learner.parameters)


def test_a_gradient_that_is_not_finite_is_pinned_on_its_rollout(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner = make_learner(**budget(16))
    samples = [
        dataclasses.replace(sample, rollout=str(number), advantage=1e38 if number == 4 else 0.0)
        for number, sample in enumerate(make_samples())
    ]
    before = weights(learner)
    with pytest.raises(TrainingFailedError, match="the gradient of rollout 4 is not finite"):
        learner.update(samples, step=1)
    assert same(weights(learner), before)


RATE = {"optimizer": {"learningRate": 1e-2}}
LOSSES = [
    {"kind": kind}
    for kind in ("PPOClip", "DAPO", "GSPO", "CISPO", "CEGPPO", "MiniRL", "DecoupledPPO")
] + [
    {"aggregation": "SequenceMean"},
    {"aggregation": "ConstantLength", "length": 9},
]
CORRECTIONS = [
    {"kind": "TIS"},
    {"kind": "IcePop"},
    {"kind": "MIS"},
    {"kind": "OPSM", "threshold": 0.01},
    {"kind": "ImportanceCap"},
]
ALGORITHMS: list[dict[str, Any]] = [
    *({"loss": loss} for loss in LOSSES),
    *({"offPolicy": {"correction": correction}} for correction in CORRECTIONS),
    {"estimator": {"kind": "MaxEnt"}, "loss": {"kind": "MaxEnt"}, "kl": {}},
    {"entropyCoefficient": 0.1},
    {"kl": {"estimator": "Full", "coefficient": 1.0}, "entropyCoefficient": 0.1},
    {"kl": {"estimator": "Full", "gradient": "StraightThrough"}},
    {"kl": {"gradient": "Unbiased"}, "loss": {"kind": "CISPO"}},
]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_packing_and_accumulation_change_no_loss(
    algorithm: dict[str, Any], make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    samples = make_samples([3, 9, 5, 12, 7, 4, 16, 6])
    once = make_learner(algorithm=algorithm, **budget(4096))
    often = make_learner(algorithm=algorithm, **budget(16))
    alone = make_learner(algorithm=algorithm, training={"maxSequencesPerMicrobatch": 1})
    large = once.update(samples, step=1)
    for learner in (often, alone):
        update = learner.update(samples, step=1)
        assert update.loss == pytest.approx(large.loss, abs=1e-5)
        for name, gradient in gradients(once).items():
            assert torch.allclose(gradients(learner)[name], gradient, rtol=1e-5, atol=1e-5), name


def test_a_step_of_several_updates_makes_each_from_its_prompts(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    samples = [
        dataclasses.replace(sample, group=str(number // 2))
        for number, sample in enumerate(make_samples())
    ]
    learner = make_learner(training={"promptsPerStep": 3, "promptsPerUpdate": 1})
    apart = make_learner(training={"promptsPerStep": 3})
    update = learner.update(samples, step=1)
    order = updates(
        [sample.group for sample in samples], prompts_per_update=1, passes=1, seed=42, step=1
    )
    losses = [apart.update([samples[index] for index in chosen], step=1).loss for chosen in order]
    assert same(weights(learner), weights(apart))
    assert update.loss == pytest.approx(sum(losses) / 3)
    assert update.gap.tokens == sum(sample.num_generated for sample in samples)


def test_the_proximal_policy_stays_that_before_the_step(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    """With equal advantages and no clip in reach, π / p moves away from 1 in the second pass."""
    algorithm = {"loss": {"kind": "DecoupledPPO", "clipLow": 1.0, "clipHigh": 100.0}}
    training = {"optimizer": {"learningRate": 1e-2}, "passesPerStep": 2}
    learner = make_learner(algorithm=algorithm, training=training)
    samples = [
        dataclasses.replace(
            make_sample, logprobs=torch.where(make_sample.mask, score(learner, make_sample), 0.0)
        )
        for make_sample in make_samples()
    ]
    once = make_learner(algorithm=algorithm, training=training | {"passesPerStep": 1})
    first = once.update(samples, step=1)
    proximal = [score(make_learner(), sample)[sample.mask] for sample in samples]
    total = sum(
        float((-(score(once, sample)[sample.mask] - p).exp() * sample.advantage).sum())
        for sample, p in zip(samples, proximal, strict=True)
    )
    second = total / sum(sample.num_generated for sample in samples)
    assert learner.update(samples, step=1).loss == pytest.approx(
        (first.loss + second) / 2, abs=1e-5
    )


def test_an_entropy_bonus_flattens_the_distributions(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    samples = [dataclasses.replace(make_sample, advantage=0.0) for make_sample in make_samples()]
    learner = make_learner(algorithm={"entropyCoefficient": 1.0}, training=RATE)
    entropies = [learner.update(samples, step=step).entropy for step in (1, 2, 3, 4)]
    known = [entropy for entropy in entropies if entropy is not None]
    assert len(known) == 4
    assert known == sorted(known)
