"""Every loss with every correction and average, against numbers made without torch."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.correction import CORRECTION_KINDS
from rl_contracts.spec.algorithm.loss import LOSS_KINDS
from rl_trainer.algorithm import objective
from rl_trainer.algorithm.corrections import CORRECTIONS
from rl_trainer.algorithm.logprobs import TokenStatistics
from rl_trainer.algorithm.losses import LOSSES
from rl_trainer.algorithm.packing import Packed
from tests.examples import examples
from tests.unit.rl_trainer import losses_reference as reference
from tests.unit.rl_trainer.losses_reference import Setting, Token

STEP = 9
KINDS = (
    "PPOClip",
    "DAPO",
    "GSPO",
    "CISPO",
    "CEGPPO",
    "MiniRL",
    "DecoupledPPO",
    "DPPOTV",
    "SAPO",
    "GMPO",
    "MaxEnt",
)
CORRECTED: list[tuple[str, dict[str, Any]]] = [
    ("TIS", {}),
    ("TIS", {"cap": 1.5, "low": 0.6}),
    ("IcePop", {}),
    ("TIS", {"level": "Sequence"}),
    ("TIS", {"level": "Geometric", "low": 0.4, "cap": 1.5}),
    ("MIS", {}),
    ("MIS", {"level": "Geometric", "low": 0.7, "cap": 1.4}),
    ("OPSM", {"threshold": 0.1}),
    ("ImportanceCap", {}),
    ("ImportanceCap", {"decay": 0.5, "cap": 3.0}),
    ("ImportanceCap", {"strict_in_bound": True}),
]
SETTINGS = [
    *(Setting(kind=kind) for kind in KINDS),
    *(
        Setting(kind=kind, average=average)
        for kind in ("PPOClip", "CISPO")
        for average in ("TokenMean", "SequenceMean", "SequenceSum", "ConstantLength")
    ),
    *(
        Setting(kind=kind, correction=correction, options=options)
        for kind, (correction, options) in itertools.product(
            ("PPOClip", "GSPO", "CISPO", "CEGPPO", "MiniRL"), CORRECTED
        )
    ),
    *(
        Setting(kind=kind, correction=correction, options=options)
        for kind in ("DPPOTV", "SAPO", "GMPO")
        for correction, options in (CORRECTED[0], CORRECTED[3], CORRECTED[7])
    ),
    Setting(dual=3.0),
    Setting(kind="CEGPPO", below=0.0, above=2.5, low=0.1, high=0.4),
    Setting(kind="CEGPPO", below=5.0, dual=3.0),
    Setting(kind="DecoupledPPO", cap=1.3),
    Setting(kind="DecoupledPPO", dual=1.5, correction="OPSM", options={"threshold": 0.2}),
    Setting(kind="GSPO", low=0.2, high=0.3),
    Setting(kind="MaxEnt", clip_coefficient=0.5),
    Setting(kind="DPPOTV", low=0.05, high=0.3),
    Setting(kind="SAPO", tau_positive=0.5, tau_negative=3.0, average="TokenMean"),
    Setting(kind="GMPO", low=0.1, high=0.2),
]
NEAR = st.floats(-3, 3)
FAR = st.sampled_from([-200.0, -30.0, 30.0, 200.0])
LOG_RATIOS = NEAR | FAR
TOKENS = st.builds(
    lambda mu, drift, gap, advantage, age: Token(
        pi=mu + gap + drift, mu=mu, p=mu + gap, advantage=advantage, age=age
    ),
    st.floats(-8, 0),
    LOG_RATIOS,
    NEAR,
    st.sampled_from([0.0, -2.0, -0.5, 0.3, 1.7]),
    st.integers(0, 4),
)
BATCHES = st.lists(st.lists(TOKENS, min_size=1, max_size=5), min_size=1, max_size=4)


def algorithm(setting: Setting) -> Algorithm:
    loss = {
        "kind": setting.kind,
        "clip_low": setting.low,
        "clip_high": setting.high,
        "dual_clip": setting.dual,
        "importance_cap": setting.cap,
        "clip_coefficient": setting.clip_coefficient,
        "aggregation": setting.average,
        "gradient_below": setting.below,
        "gradient_above": setting.above,
        "tau_positive": setting.tau_positive,
        "tau_negative": setting.tau_negative,
        "length": setting.length if setting.average == "ConstantLength" else None,
    }
    correction = {"kind": setting.correction, **setting.options}
    return Algorithm.model_validate({"loss": loss, "off_policy": {"correction": correction}})


def packed(batch: list[list[Token]]) -> tuple[torch.Tensor, Packed]:
    """Only what the objective reads, in float64."""
    tokens = [token for sequence in batch for token in sequence]
    number = torch.tensor([index for index, row in enumerate(batch) for _ in row])
    unused = torch.zeros(0, dtype=torch.int64)
    logprobs = torch.tensor([token.pi for token in tokens], dtype=torch.float64, requires_grad=True)
    return logprobs, Packed(
        tokens=unused,
        positions=unused,
        lengths=(),
        sources=unused,
        targets=unused,
        logprobs=torch.tensor([token.mu for token in tokens], dtype=torch.float64),
        advantages=torch.tensor([token.advantage for token in tokens], dtype=torch.float64),
        weights=torch.ones(len(tokens), dtype=torch.float64),
        sequences=number,
        policy_steps=torch.tensor([STEP - 1 - token.age for token in tokens]),
        members=tuple(range(len(batch))),
        proximal=torch.tensor([token.p for token in tokens], dtype=torch.float64),
    )


def evaluated(setting: Setting, batch: list[list[Token]]) -> tuple[float, list[float]]:
    section = algorithm(setting)
    logprobs, given_tokens = packed(batch)
    terms = objective.evaluate(TokenStatistics(logprobs=logprobs), given_tokens, section, step=STEP)
    loss = terms.total / objective.denominator([len(sample) for sample in batch], section)
    torch.autograd.backward(loss)
    assert logprobs.grad is not None
    assert terms.not_finite == ()
    assert float(terms.sums[objective.LOSS]) == pytest.approx(float(terms.total.detach()))
    return float(loss.detach()), logprobs.grad.tolist()


def test_every_kind_of_the_manifest_has_a_function() -> None:
    assert set(LOSSES) == set(LOSS_KINDS) == set(KINDS)
    assert set(CORRECTIONS) | {"None"} == set(CORRECTION_KINDS)


NEARLY_NOTHING = [
    Token(pi=0.0, mu=0.0, p=0.0, advantage=0.0),
    Token(pi=-2.0, mu=0.0, p=-2.0, advantage=1.7),
    Token(pi=-200.0, mu=0.0, p=0.0, advantage=-2.0),
]
"""With SAPO the last two make up for each other but for a hundredth, so that rounding shows."""
NOTHING = [
    [Token(pi=0.0, mu=0.0, p=0.0, advantage=advantage) for advantage in advantages]
    for advantages in ([0.0, 0.3, 0.3], [-0.5], [0.3])
]
"""The means of these make up for each other."""
CANCELLING = [
    [Token(pi=pi, mu=0.0, p=0.0, advantage=advantage) for pi, advantage in row]
    for row in (
        [(0.0, 1.7), (30.0, 0.3), (200.0, -2.0)],
        [(30.0, 1.7), (0.0, 0.3), (0.0, -2.0)],
    )
]
"""With GMPO terms of up to e^20 / 3 whose sum is 0: 3e-9 of rounding is left."""
ROUNDING = 4e-15
"""Of the sum of the terms' magnitudes: 36 units of float64 rounding; up to 6.2 were measured."""


@pytest.mark.parametrize("setting", SETTINGS, ids=repr)
@example(batch=[NEARLY_NOTHING])
@example(batch=NOTHING)
@example(batch=CANCELLING)
@example(batch=[[Token(pi=-0.4, mu=0.0, p=0.0, advantage=-2.0)]])  # on a bound of GMPO
@settings(max_examples=examples(10), deadline=None)
@given(batch=BATCHES)
def test_value_and_gradient_are_those_of_the_reference(
    setting: Setting, batch: list[list[Token]]
) -> None:
    """Both agree to nine digits, or to 1e-12.

    A sum whose terms cancel has fewer digits: its error is a share of the terms, not of the sum. So
    the value, which is such a sum, may also differ by the rounding of its terms. That exceeds 1e-9
    only where the terms exceed 2e5. A gradient is a single term and gets no such allowance.
    """
    loss, magnitude, gradients = reference.loss(setting, batch)
    value, gradient = evaluated(setting, batch)
    assert value == pytest.approx(loss, rel=1e-9, abs=1e-12 + ROUNDING * magnitude)
    expected = [slope for row in gradients for slope in row]
    if not reference.on_a_bound(setting, batch):
        assert gradient == pytest.approx(expected, rel=1e-9, abs=1e-12)


ONE = Token(pi=-1.0, mu=-1.5, p=-1.2, advantage=1.0)
TWO = Token(pi=-2.0, mu=-1.0, p=-1.4, advantage=-1.0)
BY_HAND = [
    # r = e^0.5 = 1.649 is held at 1.2; r = e^-1 = 0.368 at 0.8, and A < 0: (-1.2 + 0.8) / 2.
    (Setting(), [[ONE, TWO]], -0.2, [0.0, 0.0]),
    # 1.649 is under 5 and 0.368 over 0: (1.649 x 1 - 0.368 x 2) / 2 and its weights.
    (Setting(kind="CISPO"), [[ONE, TWO]], 0.45648, [-0.82436, 0.18394]),
    # 1.649 is above 1.28: -1 x 1.28; 0.368 below 0.8, A < 0: 0.75 x 0.8; halved.
    (Setting(kind="CEGPPO"), [[ONE, TWO]], -0.34, [-0.64, 0.3]),
    # Mean log-ratio (0.5 - 1) / 2: s = e^-0.25 = 0.7788 in both; A > 0 keeps, A < 0 is held.
    (Setting(kind="GSPO", low=0.2, high=0.2), [[ONE, TWO]], 0.0106, [-0.3894, 0.0]),
    # Beyond 1.3 with A > 0: out; 0.368 is below 0.8 with A < 0: out.
    (Setting(kind="MiniRL"), [[ONE, TWO]], 0.0, [0.0, 0.0]),
    # π/p = e^0.2 = 1.2214 held at 1.2, w = e^0.3; π/p = e^-0.6 = 0.5488 held at 0.8, w = e^-0.4.
    (Setting(kind="DecoupledPPO"), [[ONE, TWO]], -0.54179, [0.0, 0.0]),
    # Twice the weight of a uniform one and none: -2 x -1 / 2.
    (
        Setting(kind="MaxEnt"),
        [[Token(pi=-1.0, mu=0.0, p=0.0, advantage=2.0)], [Token(pi=-9.0, mu=0, p=0, advantage=0)]],
        1.0,
        [-1.0, 0.0],
    ),
    # Twice the ratio e^1 = 2.718 with A = -2: 5.44, at most 3 x 2 under a dual clip of 3.
    # π - μ = 0.368 - 0.223 = 0.145 is inside, 0.135 - 0.368 = -0.233 is not: r = 1.649 by log π.
    (Setting(kind="DPPOTV"), [[ONE, TWO]], 0.82436, [-0.82436, 0.0]),
    # A rare token may grow from e^-9 to e^-3 = 0.05: r = e^6 = 403 counts as 20.
    (
        Setting(kind="DPPOTV"),
        [[Token(pi=-3.0, mu=-9.0, p=-9.0, advantage=1.0)]],
        60.0,
        [-20.0],
    ),
    # σ(0.6487) = 0.65672; σ(1.05 (0.3679 - 1)) = 0.33990: (-4 x 0.65672 + 4/1.05 x 0.33990) / 2.
    # 4 x 0.65672 x 0.34328 x 1.6487 = 1.48674; 4 x 0.3399 x 0.6601 x 0.3679 = 0.33016; halved.
    (Setting(kind="SAPO"), [[ONE, TWO]], -0.66601, [-0.74337, 0.16508]),
    # On the policy the gate is 2/τ, and the gradient that of -A log π: 4 x 1/2 x 1/2.
    (
        Setting(kind="SAPO"),
        [[Token(pi=-1.0, mu=-1.0, p=-1.0, advantage=2.0)]],
        -4.0,
        [-2.0],
    ),
    # 0.5 is held at 0.4, A > 0; -1 at -0.4, A < 0: their mean is 0.
    (Setting(kind="GMPO"), [[ONE, TWO]], 0.0, [0.0, 0.0]),
    # A < 0 leaves 0.5 as it is, and -1 is held at -0.4: s = e^0.05 = 1.05127.
    (
        Setting(kind="GMPO"),
        [[Token(pi=-1.0, mu=-1.5, p=0, advantage=-1.0), TWO]],
        1.05127,
        [0.52564, 0.0],
    ),
    (Setting(dual=2.0), [[Token(pi=-1.0, mu=-2.0, p=-2.0, advantage=-2.0)]], 4.0, [0.0]),
]


@pytest.mark.parametrize(("setting", "batch", "loss", "gradient"), BY_HAND)
def test_objective_terms_by_hand(
    setting: Setting, batch: list[list[Token]], loss: float, gradient: list[float]
) -> None:
    value, slopes = evaluated(setting, batch)
    assert value == pytest.approx(loss, abs=2e-5)
    assert slopes == pytest.approx(gradient, abs=2e-5)


@pytest.mark.parametrize("correction", ["None", "TIS", "IcePop", "MIS", "OPSM"])
@pytest.mark.parametrize("estimator", ["K1", "K3"])
def test_unbiased_kl_expected_under_the_sampler_is_the_kl_with_every_correction(
    estimator: str, correction: str
) -> None:
    """All 7 tokens of a vocabulary, each as likely as the sampler found it; nothing is sampled."""
    generator = torch.Generator().manual_seed(3)
    logits, p, mu, ref = (
        torch.randn(7, generator=generator).double().log_softmax(-1) for _ in range(4)
    )
    logits.requires_grad_()
    logprobs = logits.log_softmax(-1)
    _, every_token = packed([[Token(pi=0.0, mu=0.0, p=0.0, advantage=0.0)] for _ in range(7)])
    every_token = replace(
        every_token, logprobs=mu, proximal=p, reference=ref, weights=mu.exp(), members=(0,) * 7
    )
    options = {"threshold": 1.0} if correction == "OPSM" else {}
    section = Algorithm.model_validate(
        {
            "loss": {"aggregation": "SequenceSum"},
            "kl": {"estimator": estimator, "gradient": "Unbiased"},
            "offPolicy": {"correction": {"kind": correction, **options}},
        }
    )
    terms = objective.evaluate(
        TokenStatistics(logprobs=logprobs), every_token, section, step=STEP, kl_coefficient=1.0
    )
    exact = (logprobs.exp() * (logprobs - ref)).sum()
    assert float(terms.total.detach()) == pytest.approx(float(exact.detach()), rel=1e-9)
    (wanted,) = torch.autograd.grad(exact, logits, retain_graph=True)
    (actual,) = torch.autograd.grad(terms.total, logits)
    assert torch.allclose(actual, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("estimator", "gradient"), [("K3", "Unbiased"), ("Full", "Plain")])
def test_second_kl_in_the_loss_is_the_penalty_of_placement_loss(
    estimator: str, gradient: str
) -> None:
    """Beside a penalty on the reward, which has another estimator and does not act here."""
    second = {"estimator": estimator, "gradient": gradient, "coefficient": 0.3}

    def evaluated_with(kl: dict[str, Any], coefficient: float) -> tuple[float, list[float]]:
        logprobs, given_tokens = packed([[ONE, TWO]])
        given_tokens = replace(given_tokens, reference=torch.tensor([-1.3, -0.7]).double())
        section = Algorithm.model_validate({"kl": kl})
        full = (logprobs * 2).square()
        statistics = TokenStatistics(logprobs=logprobs, divergences=full)
        terms = objective.evaluate(
            statistics, given_tokens, section, step=STEP, kl_coefficient=coefficient
        )
        (slopes,) = torch.autograd.grad(terms.total, logprobs)
        return float(terms.total.detach()), slopes.tolist()

    both = {"placement": "Reward", "estimator": "K1", "loss": second}
    value, slopes = evaluated_with(both, 9.0)
    wanted, gradients = evaluated_with(second, 0.3)
    assert value == pytest.approx(wanted, rel=1e-12)
    assert slopes == pytest.approx(gradients, rel=1e-12)
    alone, _ = evaluated_with({"placement": "Reward", "estimator": "K1"}, 9.0)
    assert value != pytest.approx(alone)


@pytest.mark.parametrize("kind", KINDS)
def test_splitting_a_batch_over_microbatches_or_processes_changes_nothing(kind: str) -> None:
    batch = [[ONE, TWO], [TWO], [ONE, ONE, TWO]]
    section = algorithm(Setting(kind=kind))
    denominator = objective.denominator([len(sample) for sample in batch], section)
    total, parts = evaluated(Setting(kind=kind), batch)[0], 0.0
    for part in ([batch[2]], [batch[0], batch[1]]):
        logprobs, tokens = packed(part)
        parts += (
            float(
                objective.evaluate(
                    TokenStatistics(logprobs=logprobs), tokens, section, step=STEP
                ).total.detach()
            )
            / denominator
        )
    assert parts == pytest.approx(total, abs=1e-9)


def test_a_loss_that_is_not_finite_is_pinned_on_its_sequence() -> None:
    batch = [[ONE], [TWO, Token(pi=-1, mu=-1, p=-1, advantage=math.nan)], [ONE]]
    logprobs, tokens = packed(batch)
    terms = objective.evaluate(
        TokenStatistics(logprobs=logprobs), tokens, algorithm(Setting()), step=STEP
    )
    assert terms.not_finite == (1,)
