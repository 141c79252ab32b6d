from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_trainer.algorithm import objective
from rl_trainer.algorithm.logprobs import TokenStatistics
from rl_trainer.algorithm.packing import Packed
from rl_trainer.model import model_outputs
from rl_trainer.model.accumulate import accumulate
from rl_trainer.model.attention import within_sequences
from rl_trainer.model.learner import Learner
from rl_trainer.model.policy import Policy
from tests.models.tiny_model import VOCABULARY, tiny_model
from tests.unit.rl_trainer.allocation import Allocation
from tests.unit.rl_trainer.compared import gradients
from tests.unit.rl_trainer.conftest import MakeLearner, MakeSamples, MakeSpec

ALGORITHMS: list[dict[str, Any]] = [
    {},
    {"loss": {"kind": "GSPO"}, "offPolicy": {"correction": {"kind": "OPSM", "threshold": 0.01}}},
    {"loss": {"kind": "GMPO"}},
    {"loss": {"kind": "SAPO"}},
    {"loss": {"kind": "DPPOTV"}, "offPolicy": {"correction": {"kind": "MIS"}}},
    {"loss": {"kind": "DAPO", "aggregation": "SequenceMean"}, "kl": {"coefficient": 0.3}},
    {"kl": {"estimator": "Full", "coefficient": 0.5}, "entropyCoefficient": 0.1},
]


def plain(learner: Learner, packed: Packed, *, denominator: int) -> float:
    """Loss of a microbatch, its logits all at once; leaves the gradient with the parameters."""
    logs = distributions(learner.policy, packed)
    divergences = None
    if learner.models.full_reference is not None:
        with torch.no_grad():
            others = distributions(learner.models.full_reference, packed)
        divergences = (logs.exp() * (logs - others)).sum(-1)
    statistics = TokenStatistics(
        logprobs=logs.gather(-1, packed.targets[:, None])[:, 0],
        entropies=-(logs.exp() * logs).sum(-1),
        divergences=divergences,
    )
    terms = objective.evaluate(
        statistics,
        packed,
        learner.models.algorithm,
        step=1,
        kl_coefficient=learner.controls.kl_coefficient,
    )
    loss = terms.total / denominator
    torch.autograd.backward(loss)
    return float(loss.detach())


def distributions(policy: Policy, packed: Packed) -> Tensor:
    """By transformers' own attention, with its dense mask."""
    given = {"input_ids": packed.tokens, "position_ids": packed.positions}
    policy.module.set_attn_implementation("sdpa")
    all_logits: Tensor = policy.module(**given, use_cache=False).logits
    policy.module.set_attn_implementation(within_sequences.NAME)
    logits = all_logits.flatten(0, 1)[packed.sources]
    return (logits / 0.7).log_softmax(-1)


@pytest.mark.parametrize("chunk_tokens", [1, 5, 11, 1000])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_parts_give_the_loss_and_gradient_of_the_whole(
    algorithm: dict[str, Any],
    chunk_tokens: int,
    make_learner: MakeLearner,
    make_samples: MakeSamples,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sections: dict[str, Any] = {"algorithm": algorithm, "agent": {"sampling": {"temperature": 0.7}}}
    learner, other = make_learner(**sections), make_learner(**sections)
    for each in (learner, other):
        if each.models.reference is not None:
            shift(each.models.reference.policy)
    samples = model_outputs.annotated(other.models, make_samples(), proximal=False)
    (packed,) = other.models.microbatches(samples)
    expected = plain(other, packed, denominator=7)
    monkeypatch.setattr("rl_trainer.model.policy.CHUNK_LOGITS", chunk_tokens * VOCABULARY)
    terms = accumulate(
        learner.models,
        packed,
        step=1,
        denominator=7,
        kl_coefficient=learner.controls.kl_coefficient,
    )
    assert sum(float(term.total) for term in terms) / 7 == pytest.approx(expected, abs=1e-5)
    wanted = gradients(other)
    for name, gradient in gradients(learner).items():
        assert torch.allclose(gradient, wanted[name], rtol=1e-5, atol=1e-5), name


def shift(policy: Policy) -> None:
    """Make the reference differ from the policy."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)


def test_logits_are_made_once_but_for_sequences_longer_than_a_chunk(
    make_learner: MakeLearner, make_samples: MakeSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner()
    samples = make_samples([3, 9, 5, 60, 7, 4])
    counts = [sample.num_generated for sample in samples]
    monkeypatch.setattr("rl_trainer.model.policy.CHUNK_LOGITS", 10 * VOCABULARY)
    made: list[int] = []
    head = learner.policy.module.get_output_embeddings()
    head.register_forward_hook(lambda module, given, logits: made.append(len(logits)))
    learner.update(samples, step=1)
    assert max(made) <= 10
    assert sum(made) == sum(counts) + max(counts)


WIDE = 5000
"""Vocabulary beside which the rest of the model is small."""


@pytest.fixture
def make_wide(make_spec: MakeSpec) -> Callable[..., Learner]:
    def make(**sections: Any) -> Learner:
        module = tiny_model(vocab_size=WIDE, max_position_embeddings=512)
        policy = Policy(module=module, device=torch.device("cpu"), half=None)
        return Learner(policy, make_spec(**sections))

    return make


@pytest.mark.parametrize("lengths", [[50] * 12, [400, 200]], ids=["short", "long"])
@pytest.mark.parametrize(
    "algorithm",
    [{}, {"entropyCoefficient": 0.1}, {"kl": {"estimator": "Full"}}],
    ids=["log-probabilities", "entropies", "full KL"],
)
def test_a_step_never_holds_tokens_times_vocabulary(
    algorithm: dict[str, Any],
    lengths: list[int],
    make_wide: Callable[..., Learner],
    make_samples: MakeSamples,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = make_wide(algorithm=algorithm)
    samples = make_samples(lengths)
    learner.update(samples, step=1)  # gradients and moments are there afterwards
    chunk = 40 * WIDE
    monkeypatch.setattr("rl_trainer.model.policy.CHUNK_LOGITS", chunk)
    with Allocation(width=WIDE) as counted:
        learner.update(samples, step=2)
    assert 0 < counted.peak <= 2 * 4 * chunk
