from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.estimator import Estimator
from rl_contracts.spec.algorithm.kl import KL
from rl_trainer.algorithm.estimators import ESTIMATORS
from rl_trainer.algorithm.estimators.records import Episode, State
from rl_trainer.algorithm.kl import controller
from rl_trainer.algorithm.kl.controller import Controls
from rl_trainer.algorithm.kl.estimators import divergence
from rl_trainer.algorithm.logprobs import token_statistics

VOCABULARY = 7


def distributions(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of π with gradient, log ref and log μ, float64 over a small vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    pi, ref, mu = (torch.randn(VOCABULARY, generator=generator).double() for _ in range(3))
    return pi.requires_grad_(), ref.log_softmax(-1), mu.log_softmax(-1)


def exact(logits: Tensor, ref: Tensor) -> Tensor:
    logs = logits.log_softmax(-1)
    return (logs.exp() * (logs - ref)).sum()


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"),
    [("K1", 0.5, 1.0), ("Abs", 0.5, 1.0), ("K2", 0.125, 0.5), ("K3", 0.1065307, 0.3934693)],
)
def test_one_token_by_hand(estimator: str, value: float, gradient: float) -> None:
    """log π = -1 and log ref = -1.5: Δ = -0.5."""
    logprobs = torch.tensor([-1.0], dtype=torch.float64, requires_grad=True)
    section = KL.model_validate({"estimator": estimator})
    penalty = divergence(section, logprobs, reference=torch.tensor([-1.5]).double(), full=None)
    torch.autograd.backward(penalty.sum())
    assert logprobs.grad is not None
    assert penalty.item() == pytest.approx(value, abs=1e-7)
    assert logprobs.grad.item() == pytest.approx(gradient, abs=1e-7)


@pytest.mark.parametrize("estimator", ["K1", "K3"])
def test_the_mean_over_the_policy_is_the_divergence(estimator: str) -> None:
    logits, ref, _ = distributions()
    logs = logits.log_softmax(-1).detach()
    section = KL.model_validate({"estimator": estimator})
    penalty = divergence(section, logs, reference=ref, full=None)
    assert float((logs.exp() * penalty).sum()) == pytest.approx(float(exact(logits.detach(), ref)))


def test_the_gradient_of_k2_over_the_policy_is_that_of_the_divergence() -> None:
    logits, ref, _ = distributions()
    wanted = torch.autograd.grad(exact(logits, ref), logits)[0]
    for options in (
        {"estimator": "K2"},
        {"estimator": "K3", "gradient": "StraightThrough"},
        {"estimator": "K1", "gradient": "StraightThrough"},
    ):
        logs = logits.log_softmax(-1)
        values = divergence(KL.model_validate(options), logs, reference=ref, full=None)
        gradient = torch.autograd.grad((logs.detach().exp() * values).sum(), logits)[0]
        assert torch.allclose(gradient, wanted, atol=1e-12)
    # K3 alone has another gradient: that of the reverse divergence.
    logs = logits.log_softmax(-1)
    plain = divergence(KL(), logs, reference=ref, full=None)
    biased = torch.autograd.grad((logs.detach().exp() * plain).sum(), logits)[0]
    assert not torch.allclose(biased, wanted, atol=1e-3)


@pytest.mark.parametrize("estimator", ["K1", "K3"])
def test_unbiased_means_over_the_sampler_are_value_and_gradient_of_the_divergence(
    estimator: str,
) -> None:
    logits, ref, mu = distributions(3)
    wanted = torch.autograd.grad(exact(logits, ref), logits)[0]
    logs = logits.log_softmax(-1)
    section = KL.model_validate({"estimator": estimator, "gradient": "Unbiased"})
    values = divergence(section, logs, reference=ref, full=None, ratios=(logs - mu).exp())
    mean = (mu.exp() * values).sum()
    assert float(mean.detach()) == pytest.approx(float(exact(logits.detach(), ref)))
    assert torch.allclose(torch.autograd.grad(mean, logits)[0], wanted, atol=1e-12)


def test_straight_through_has_one_value_and_the_other_gradient() -> None:
    logprobs = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([-1.5, -1.0], dtype=torch.float64)
    section = KL.model_validate({"estimator": "Abs", "gradient": "StraightThrough"})
    penalty = divergence(section, logprobs, reference=ref, full=None)
    torch.autograd.backward(penalty.sum())
    assert penalty.tolist() == [0.5, 1.0]
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [0.5, -1.0]


def test_no_difference_overflows() -> None:
    logprobs = torch.tensor([-500.0, 0.0], requires_grad=True)
    penalty = divergence(KL(), logprobs, reference=torch.tensor([0.0, -500.0]), full=None)
    torch.autograd.backward(penalty.sum())
    assert penalty.tolist() == pytest.approx([math.exp(20) - 21, 19.0], rel=1e-5)
    assert logprobs.grad is not None
    assert torch.isfinite(logprobs.grad).all()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("chunk_tokens", [1, 4, 100])
def test_chunked_statistics_are_those_of_the_whole(temperature: float, chunk_tokens: int) -> None:
    torch.manual_seed(2)
    hidden, other = torch.randn(9, 5, requires_grad=True), torch.randn(9, 5)
    head, other_head = torch.nn.Linear(5, 23, bias=False), torch.nn.Linear(5, 23, bias=False)
    targets = torch.randint(23, (9,))
    logs = (head(hidden) / temperature).log_softmax(-1)
    others = (other_head(other) / temperature).log_softmax(-1).detach()
    whole = (
        logs.gather(-1, targets[:, None])[:, 0],
        -(logs.exp() * logs).sum(-1),
        torch.nn.functional.kl_div(others, logs, log_target=True, reduction="none").sum(-1),
    )
    statistics = token_statistics(
        hidden,
        targets,
        head=head,
        temperature=temperature,
        chunk_tokens=chunk_tokens,
        reference=(other, other_head),
    )
    assert statistics.entropies is not None
    assert statistics.divergences is not None
    for actual, expected in zip(
        (statistics.logprobs, statistics.entropies, statistics.divergences), whole, strict=True
    ):
        assert torch.allclose(actual, expected, atol=1e-6)
        gradients = torch.autograd.grad(actual.sum(), [hidden, head.weight], retain_graph=True)
        wanted = torch.autograd.grad(expected.sum(), [hidden, head.weight], retain_graph=True)
        for mine, theirs in zip(gradients, wanted, strict=True):
            assert torch.allclose(mine, theirs, atol=1e-5)


def test_statistics_hold_no_more_than_a_chunk() -> None:
    hidden = torch.randn(12, 5, requires_grad=True)
    head = torch.nn.Linear(5, 23, bias=False)
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        token_statistics(
            hidden,
            torch.zeros(12, dtype=torch.int64),
            head=head,
            temperature=1.0,
            chunk_tokens=3,
            reference=(hidden.detach(), head),
        )
    assert max(kept) < 4 * 23


def algorithm(**changes: Any) -> Algorithm:
    return Algorithm.model_validate(changes)


@pytest.mark.parametrize(
    ("kl", "rollouts", "expected"),
    [
        (0.1, 100, 0.5),  # on target
        (0.11, 100, 0.5 * (1 + 0.1 * 100 / 1000)),
        (0.09, 100, 0.5 * (1 - 0.1 * 100 / 1000)),
        (9.0, 100, 0.5 * (1 + 0.2 * 100 / 1000)),  # the error is held at 0.2
        (0.0, 100, 0.5 * (1 - 0.2 * 100 / 1000)),
        (0.0, 99_999, 0.0),  # a horizon shorter than the step
    ],
)
def test_the_adaptive_controller_by_hand(kl: float, rollouts: int, expected: float) -> None:
    section = algorithm(
        kl={"coefficient": 0.5, "controller": {"kind": "Adaptive", "target": 0.1, "horizon": 1000}}
    )
    state = controller.advance(
        controller.initial(section), section, kl=kl, rollouts=rollouts, weight_entropy=None
    )
    assert state.kl_coefficient == pytest.approx(expected)


def test_a_fixed_coefficient_stays() -> None:
    section = algorithm(kl={"coefficient": 0.5})
    first = controller.initial(section)
    assert controller.advance(first, section, kl=9.0, rollouts=5, weight_entropy=None) == first


def test_tau_follows_weight_entropy_within_its_bounds() -> None:
    tuned = {"targetEntropy": 1.0, "learningRate": 0.5, "minimum": 0.9, "maximum": 2.0}
    section = algorithm(
        estimator={"kind": "MaxEnt", "maxent": {"tau": 1.0, "tuneTau": tuned}},
        loss={"kind": "MaxEnt"},
    )
    first = controller.initial(section)
    second = controller.advance(first, section, kl=None, rollouts=4, weight_entropy=0.8)
    assert second.weight_entropy == 0.8
    assert second.tau == pytest.approx(math.exp(0.5 * 0.2))
    third = controller.advance(second, section, kl=None, rollouts=4, weight_entropy=1.3)
    assert third.weight_entropy == pytest.approx(0.9 * 0.8 + 0.1 * 1.3)
    assert third.tau == pytest.approx(second.tau * math.exp(0.5 * (1 - 0.85)))
    flat = Controls(tau=0.9, weight_entropy=1.5)
    assert controller.advance(flat, section, kl=None, rollouts=4, weight_entropy=1.5).tau == 0.9
    assert controller.mean_entropy([[1.0, 1.0], [2.0, 0.0]]) == pytest.approx(math.log(2) / 2)


ADAPTIVE = {"kind": "Adaptive", "target": 0.1, "horizon": 1000}
TUNED = {"targetEntropy": 1.0}


def max_ent(**options: Any) -> dict[str, Any]:
    return {"estimator": {"kind": "MaxEnt", "maxent": options}, "loss": {"kind": "MaxEnt"}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {"kl": {"coefficient": 0.5}}, {"kl_coefficient": 0.5}),
        ({}, {"kl": {"coefficient": 0.5, "controller": ADAPTIVE}}, {"kl_coefficient": 0.5}),
        ({"kl": {"coefficient": 0.1}}, {"kl": {"coefficient": 0.5}}, {"kl_coefficient": 0.5}),
        (
            {"kl": {"coefficient": 0.1}},
            {"kl": {"coefficient": 0.5, "controller": ADAPTIVE}},
            {"kl_coefficient": 0.5},
        ),
        (
            {"kl": {"coefficient": 0.1, "controller": ADAPTIVE}},
            {"kl": {"coefficient": 0.5}},
            {"kl_coefficient": 0.5},
        ),
        (
            {"kl": {"coefficient": 0.1, "controller": ADAPTIVE}},
            {"kl": {"coefficient": 0.5, "controller": ADAPTIVE}},
            {"kl_coefficient": pytest.approx(0.12)},
        ),
        ({"kl": {"coefficient": 0.1}}, {}, {"kl_coefficient": 0.0}),
        (
            {},
            {"objective": "Distillation", "teacher": "s3://bucket/teacher"},
            {"kl_coefficient": 1.0},
        ),
        ({}, max_ent(tau=0.1), {"tau": 0.1}),
        (max_ent(tau=0.5), max_ent(tau=0.1, tuneTau=TUNED), {"tau": 0.1}),
        (max_ent(tau=0.5, tuneTau=TUNED), max_ent(tau=0.1), {"tau": 0.1, "weight_entropy": None}),
        (
            max_ent(tau=0.5, tuneTau={"targetEntropy": 0.8}),
            max_ent(tau=0.1, tuneTau=TUNED),
            {"tau": pytest.approx(0.5), "weight_entropy": 0.8},
        ),
        ({"estimator": {"kind": "RAE"}}, {}, {"reward_baselines": {}}),
        ({}, {"estimator": {"kind": "RAE"}}, {"reward_baselines": {"a": 0.25}}),
    ],
)
def test_a_run_goes_on_only_with_values_that_change_by_themselves_in_both_runs(
    before: dict[str, Any], after: dict[str, Any], expected: dict[str, Any]
) -> None:
    made, wanted = algorithm(**before), algorithm(**after)
    left = controller.advance(
        controller.initial(made), made, kl=9.0, rollouts=1000, weight_entropy=0.8
    ).model_copy(update={"reward_baselines": {"a": 0.25}, "loss_scale": 2.0, "finite_updates": 3})
    taken = controller.resumed(left, wanted)
    assert expected.items() <= dict(taken).items()
    assert (taken.loss_scale, taken.finite_updates) == (2.0, 3)


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"kl": {"coefficient": 0.1}},
        {"kl": {"coefficient": 0.1, "controller": ADAPTIVE}},
        max_ent(tau=0.5, tuneTau=TUNED),
        {"estimator": {"kind": "RAE"}},
    ],
)
def test_under_an_unchanged_manifest_all_values_go_on(section: dict[str, Any]) -> None:
    made = algorithm(**section)
    state = controller.initial(made)
    for _ in range(2):
        assert controller.resumed(state, made) == state
        state = controller.advance(state, made, kl=9.0, rollouts=100, weight_entropy=0.8)


def test_a_checkpoint_of_an_earlier_release_goes_on_with_its_adaptive_coefficient() -> None:
    section = algorithm(kl={"coefficient": 0.5, "controller": ADAPTIVE})
    for saved, coefficient in ({"kl_coefficient": 0.1}, 0.1), ({"kl_coefficient": 0.0}, 0.5):
        controls = controller.resumed(Controls.model_validate(saved), section)
        assert controls.kl_coefficient == coefficient


def weights(rewards: list[float], references: list[float], **options: Any) -> list[float]:
    state = State(kl_coefficient=options.pop("beta", 0.0), tau=options.pop("tau", 1.0))
    section = Estimator.model_validate({"kind": "MaxEnt", "maxent": options})
    group = [
        Episode(reward=reward, num_tokens=2, reference=reference)
        for reward, reference in zip(rewards, references, strict=True)
    ]
    (advantages,) = ESTIMATORS["MaxEnt"]([group], section, state)
    return [float(advantage) for advantage in advantages]


def test_weights_by_hand() -> None:
    # Without a reference and τ = 1 they are K times the softmax of the rewards.
    e = math.e
    assert weights([1.0, 0.0], [0.0, 0.0]) == pytest.approx([2 * e / (e + 1), 2 / (e + 1)], 1e-5)
    # τ = 1/2 squares them.
    assert weights([1.0, 0.0], [0.0, 0.0], tau=0.5) == pytest.approx(
        [2 * e * e / (e * e + 1), 2 / (e * e + 1)], rel=1e-5
    )
    # The reference prefers the second by 2 nats, β = 1: logits (1 - 1) / 2 and (0 + 1) / 2.
    ratio = math.exp(0.5)
    assert weights([1.0, 0.0], [-1.0, 1.0], beta=1.0) == pytest.approx(
        [2 / (1 + ratio), 2 * ratio / (1 + ratio)], rel=1e-5
    )


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-9, 0)), min_size=1, max_size=8),
    st.floats(0.05, 5),
    st.floats(0, 3),
    st.floats(0.1, 5),
    st.floats(1e-6, 0.1),
)
def test_weights_agree_with_torch(
    members: list[tuple[float, float]], tau: float, beta: float, temperature: float, epsilon: float
) -> None:
    rewards, references = (torch.tensor(column).double() for column in zip(*members, strict=True))
    q = (rewards / temperature).softmax(-1) * (1 - len(members) * epsilon) + epsilon
    wanted = ((q.log() + beta * references) / (tau + beta)).softmax(-1) * len(members)
    actual = weights(
        rewards.tolist(),
        references.tolist(),
        tau=tau,
        beta=beta,
        qTemperature=temperature,
        qEpsilon=epsilon,
    )
    assert actual == pytest.approx(wanted.tolist(), rel=1e-9)
    assert sum(actual) == pytest.approx(len(members))


@pytest.mark.parametrize("size", [1, 4])
def test_equal_members_weigh_the_same(size: int) -> None:
    assert weights([0.3] * size, [-2.0] * size, beta=0.5) == pytest.approx([1.0] * size)
