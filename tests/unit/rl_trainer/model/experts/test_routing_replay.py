"""Tokens that pass the experts that an engine chose, with the trainer's own gates."""

from __future__ import annotations

import dataclasses
import re
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

ROUTER = re.compile(r"mlp\.(gate|router)\.")
LENGTHS = (3, 9, 5, 12, 7, 4)
REPLAY = {"experts": {"routing": "Replay"}}


@pytest.fixture
def make_mixture(mixture: Path, make_spec: MakeSpec) -> Any:
    def make(*, recompute: bool = False, **sections: Any) -> Learner:
        policy = loading.load(mixture, precision="FP32", uri="s3://models/m", recompute=recompute)
        return Learner(policy, make_spec(**sections))

    return make


def watched(learner: Learner) -> dict[int, Any]:
    return routers._routers(learner.policy.module)


def with_choices(learner: Learner, samples: list[Sample], *, seed: int | None) -> list[Sample]:
    """Samples with a model's own choices, or with drawn ones; those of last tokens are unknown."""
    config = learner.policy.module.config
    layers, picks = config.num_hidden_layers, config.num_experts_per_tok
    experts = routers.replayed(learner.policy.module).experts
    chosen = []
    for at, sample in enumerate(samples):
        own = torch.zeros((len(sample), layers, picks), dtype=torch.int16)
        if seed is None:
            for layer, tokens in own_choices(learner, sample).items():
                own[:, layer] = tokens.to(torch.int16)
        else:
            generator = torch.Generator().manual_seed(seed + at)
            drawn = torch.rand((len(sample), layers, experts), generator=generator)
            own = drawn.argsort(-1)[..., :picks].to(torch.int16)
        own[-1] = -1
        chosen.append(dataclasses.replace(sample, choices=own.flatten(1)))
    return chosen


def own_choices(learner: Learner, sample: Sample) -> dict[int, Tensor]:
    kept: dict[int, Tensor] = {}
    hooks = [
        router.register_forward_hook(
            lambda _, __, outputs, layer=layer: kept.__setitem__(layer, outputs[2])
        )
        for layer, router in watched(learner).items()
    ]
    with torch.no_grad():
        learner.policy.module(input_ids=sample.tokens[None], use_cache=False)
    for hook in hooks:
        hook.remove()
    return kept


def forced_logprobs(learner: Learner, sample: Sample) -> Tensor:
    """Of the generated tokens, by a plain pass whose routers are replaced, gate by gate."""
    module = learner.policy.module
    config = module.config
    choices = sample.choices
    assert choices is not None
    by_layer = choices.reshape(len(sample), config.num_hidden_layers, -1)

    def forced(router: Any, _: Any, outputs: Any, *, layer: int) -> Any:
        logits, gates, chosen = outputs
        rows, picks = [], []
        for token in range(len(logits)):
            wanted = by_layer[token, layer].tolist()
            if -1 in wanted:
                wanted = chosen[token].tolist()
            exact = logits[token].float()
            scores = (
                exact.exp() / exact.exp().sum()
                if ROUTERS[config.model_type] == "Softmax"
                else 1 / (1 + (-exact).exp())
            )
            picked = [scores[expert] for expert in wanted]
            total = sum(picked) if getattr(router, "norm_topk_prob", True) else 1.0
            factor = getattr(router, "routed_scaling_factor", 1.0)
            rows.append(torch.stack([value / total * factor for value in picked]))
            picks.append(wanted)
        return logits, torch.stack(rows).to(gates.dtype), torch.tensor(picks)

    hooks = [
        router.register_forward_hook(
            lambda router, given, outputs, layer=layer: forced(router, given, outputs, layer=layer)
        )
        for layer, router in watched(learner).items()
    ]
    module.set_attn_implementation(within_sequences.ordinary(module))
    logits = module(input_ids=sample.tokens[None], use_cache=False).logits[0]
    module.set_attn_implementation(within_sequences.NAME)
    for hook in hooks:
        hook.remove()
    chosen = logits[:-1].log_softmax(-1).gather(-1, sample.tokens[1:, None])[:, 0]
    result: Tensor = chosen[sample.mask[1:]]
    return result


def test_own_choices_replayed_change_nothing(make_mixture: Any, make_samples: MakeSamples) -> None:
    plain, replaying = make_mixture(), make_mixture(algorithm=REPLAY)
    samples = with_choices(make_mixture(), make_samples(LENGTHS), seed=None)
    for learner in (plain, replaying):
        learner.update(samples, step=1)
    expected = weights(plain)
    for name, weight in weights(replaying).items():
        assert torch.allclose(weight, expected[name], rtol=0, atol=1e-6), name


@pytest.mark.parametrize(("tokens", "recompute"), [(16, True), (100, False)])
def test_replayed_choices_give_the_numbers_of_a_model_that_is_forced_to_them(
    tokens: int, recompute: bool, make_mixture: Any, make_samples: MakeSamples
) -> None:
    training = {"maxTokensPerMicrobatch": tokens}
    learner = make_mixture(recompute=recompute, algorithm=REPLAY, training=training)
    other = make_mixture()
    samples = with_choices(other, make_samples(LENGTHS), seed=3)
    expected = [forced_logprobs(other, sample) for sample in samples]
    logprobs = learner.models.values(
        samples, lambda packed: learner.models.logprobs(learner.policy, packed)
    )
    for mine, wanted in zip(logprobs, expected, strict=True):
        assert torch.allclose(mine, wanted, atol=1e-5)
    gaps = torch.cat(
        [
            wanted.detach() - sample.logprobs[sample.mask]
            for wanted, sample in zip(expected, samples, strict=True)
        ]
    ).abs()
    scored = learner.score(samples, temperature=1.0)
    assert scored.mean == pytest.approx(float(gaps.mean()), abs=1e-5)


def test_gradients_flow_through_the_gates_of_replayed_experts(
    make_mixture: Any, make_samples: MakeSamples
) -> None:
    loose = {"optimizer": {"maxGradientNorm": 1e6}, "maxTokensPerMicrobatch": 16}
    supervised = {"objective": "SFT", **REPLAY}  # whose loss is the log-probability alone
    learner = make_mixture(algorithm=supervised, training=loose, recompute=True)
    other = make_mixture()
    samples = with_choices(other, make_samples(LENGTHS), seed=5)
    samples = [dataclasses.replace(sample, advantage=1.0) for sample in samples]
    learner.update(samples, step=1)
    tokens = sum(sample.num_generated for sample in samples)
    total = torch.zeros(())
    for sample in samples:
        logprobs = forced_logprobs(other, sample)
        total = total - logprobs.sum() / tokens
    torch.autograd.backward(total)
    expected = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in other.parameters.items()
    }
    for name, gradient in gradients(learner).items():
        assert torch.allclose(gradient, expected[name], rtol=1e-3, atol=1e-6), name
    assert any(float(expected[name].abs().max()) > 0 for name in expected if ROUTER.search(name))


def test_loads_are_those_of_the_replayed_choices(
    make_mixture: Any, make_samples: MakeSamples
) -> None:
    learner = make_mixture(algorithm=REPLAY)
    samples = with_choices(learner, make_samples(LENGTHS), seed=None)
    config = learner.policy.module.config
    same = torch.arange(config.num_experts_per_tok, dtype=torch.int16)
    everyone = same.repeat(config.num_hidden_layers)
    samples = [
        dataclasses.replace(sample, choices=everyone.repeat(len(sample), 1)) for sample in samples
    ]
    experts = routers.replayed(learner.policy.module).experts
    figures = learner.update(samples, step=1).experts
    layers = len(watched(learner))
    assert figures["dead"] == layers * (experts - config.num_experts_per_tok)
    assert figures["load_max_ratio"] == pytest.approx(experts / config.num_experts_per_tok)
