"""Router statistics and losses beside formulas in plain Python, however tokens are packed."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_contracts.capacity.experts import ROUTERS
from rl_trainer.algorithm.samples import Sample
from rl_trainer.model import loading
from rl_trainer.model.attention import within_sequences
from rl_trainer.model.experts import routers
from rl_trainer.model.learner import Learner
from tests.unit.rl_trainer.compared import gradients, weights
from tests.unit.rl_trainer.conftest import MakeSamples, MakeSpec

BALANCE, SQUARE = 0.7, 0.03
EXPERTS = {"loadBalanceCoefficient": BALANCE, "zLossCoefficient": SQUARE}
LENGTHS = (3, 9, 5, 12, 7, 4)
FIGURES = (
    "load_max_ratio",
    "load_entropy",
    "dead",
    "router_entropy",
    "load_balance_loss",
    "z_loss",
)

MakeMixture = Callable[..., Learner]


@pytest.fixture
def make_mixture(mixture: Path, make_spec: MakeSpec) -> MakeMixture:
    def make(*, recompute: bool = False, **sections: Any) -> Learner:
        training = {"optimizer": {"maxGradientNorm": 1e6}}
        training |= sections.pop("training", {})
        policy = loading.load(mixture, precision="FP32", uri="s3://models/m", recompute=recompute)
        return Learner(policy, make_spec(training=training, **sections))

    return make


def router_logits(learner: Learner, samples: list[Sample]) -> list[Tensor]:
    """Of each layer with experts, for all tokens of all samples: run one by one, with gradient."""
    module = learner.policy.module
    module.set_attn_implementation(within_sequences.ordinary(module))
    kept: dict[int, list[Tensor]] = {}
    watched = [m for m in module.modules() if type(m).__name__.endswith(routers.CLASSES)]
    hooks = [
        router.register_forward_hook(
            lambda _, __, outputs, at=at: kept.setdefault(at, []).append(outputs[0])
        )
        for at, router in enumerate(watched)
    ]
    for sample in samples:
        module(input_ids=sample.tokens[None], use_cache=False)
    for hook in hooks:
        hook.remove()
    module.set_attn_implementation(within_sequences.NAME)
    return [torch.cat(kept[at]) for at in range(len(watched))]


def chosen_by(learner: Learner, samples: list[Sample]) -> list[list[list[int]]]:
    """Experts that each token chose, by layer."""
    module = learner.policy.module
    kept: list[list[list[int]]] = []
    watched = [m for m in module.modules() if type(m).__name__.endswith(routers.CLASSES)]
    for logits, router in zip(router_logits(learner, samples), watched, strict=True):
        del logits
        kept.append([])
        hook = router.register_forward_hook(
            lambda _, __, outputs, into=kept[-1]: into.extend(outputs[2].tolist())
        )
        with torch.no_grad():
            for sample in samples:
                module(input_ids=sample.tokens[None], use_cache=False)
        hook.remove()
    return kept


def shares(row: list[float], kind: str) -> list[float]:
    scores = (
        [math.exp(value - max(row)) for value in row]
        if kind == "Softmax"
        else [1 / (1 + math.exp(-value)) for value in row]
    )
    return [score / sum(scores) for score in scores]


def expected(learner: Learner, samples: list[Sample]) -> dict[str, float]:
    """The figures, in plain Python."""
    kind = ROUTERS[learner.policy.module.config.model_type]
    layers = [logits.tolist() for logits in router_logits(learner, samples)]
    largest, evenness, dead, entropy, balance, square = 0.0, 0.0, 0, 0.0, 0.0, 0.0
    for rows, choices in zip(layers, chosen_by(learner, samples), strict=True):
        experts, picks = len(rows[0]), [pick for token in choices for pick in token]
        loads = [picks.count(expert) / len(picks) for expert in range(experts)]
        each = [shares(row, kind) for row in rows]
        means = [sum(row[expert] for row in each) / len(rows) for expert in range(experts)]
        largest = max(largest, max(loads) * experts)
        even = -sum(load * math.log(load) for load in loads if load) / math.log(experts)
        evenness += even / len(layers)
        dead += loads.count(0)
        entropy -= sum(p * math.log(p) for row in each for p in row) / len(rows) / len(layers)
        balance += experts * sum(f * p for f, p in zip(loads, means, strict=True)) / len(layers)
        sums = [math.log(sum(math.exp(value) for value in row)) for row in rows]
        square += sum(value**2 for value in sums) / len(rows) / len(layers)
    return dict(
        zip(FIGURES, (largest, evenness, float(dead), entropy, balance, square), strict=True)
    )


def expected_gradient(learner: Learner, samples: list[Sample]) -> dict[str, Tensor]:
    """Of both losses together, by autograd of the formulas over all tokens at once."""
    learner.optimizer.zero_grad(set_to_none=True)
    kind, total = ROUTERS[learner.policy.module.config.model_type], torch.zeros(())
    logits, choices = router_logits(learner, samples), chosen_by(learner, samples)
    for layer, picks in zip(logits, choices, strict=True):
        experts = layer.shape[1]
        loads = torch.tensor([sum(token.count(e) for token in picks) for e in range(experts)])
        scores = layer.exp() if kind == "Softmax" else layer.sigmoid()
        means = (scores / scores.sum(-1, keepdim=True)).mean(0)
        balance = experts * (loads / loads.sum() * means).sum()
        square = layer.exp().sum(-1).log().square().mean()
        total = total + (BALANCE * balance + SQUARE * square) / len(logits)
    torch.autograd.backward(total)
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in learner.parameters.items()
    }


@pytest.mark.parametrize(("tokens", "recompute"), [(16, True), (100, False)])
def test_figures_count_each_token_of_the_step_once(
    tokens: int, recompute: bool, make_mixture: MakeMixture, make_samples: MakeSamples
) -> None:
    samples = make_samples(LENGTHS)
    wanted = expected(make_mixture(), samples)
    training = {"maxTokensPerMicrobatch": tokens, "passesPerStep": 2}
    learner = make_mixture(
        recompute=recompute,
        training=training,
        algorithm={"kl": {"coefficient": 0.1}, "experts": {"zLossCoefficient": 1e-9}},
    )
    assert learner.update(samples, step=1).experts == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(("tokens", "recompute"), [(16, True), (100, False)])
def test_losses_have_the_gradient_of_their_formulas(
    tokens: int, recompute: bool, make_mixture: MakeMixture, make_samples: MakeSamples
) -> None:
    samples = make_samples(LENGTHS)
    training = {"maxTokensPerMicrobatch": tokens, "maxSequencesPerMicrobatch": 3}
    plain = make_mixture(training=training)
    pulled = make_mixture(recompute=recompute, training=training, algorithm={"experts": EXPERTS})
    for learner in (plain, pulled):
        learner.update(samples, step=1)
    with_losses, without = gradients(pulled), gradients(plain)
    for name, wanted in expected_gradient(make_mixture(), samples).items():
        added = with_losses[name] - without[name]
        assert torch.allclose(added, wanted, rtol=1e-4, atol=2e-6), name


def test_without_coefficients_nothing_is_added(
    make_mixture: MakeMixture, make_samples: MakeSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = make_mixture()
    watched.update(make_samples(LENGTHS), step=1)
    monkeypatch.setattr(routers, "of", lambda module, *, replays: None)
    unwatched = make_mixture()
    assert unwatched.update(make_samples(LENGTHS), step=1).experts == {}
    assert all(
        torch.equal(weights(watched)[name], each) for name, each in weights(unwatched).items()
    )
