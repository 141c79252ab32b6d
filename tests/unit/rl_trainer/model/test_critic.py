from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.arrays import unpack_float32
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm import credit
from rl_trainer.algorithm.assessment import Assessment, Context
from rl_trainer.algorithm.estimators import ESTIMATORS, gae
from rl_trainer.algorithm.estimators.records import Episode, State
from rl_trainer.algorithm.losses import value
from rl_trainer.algorithm.samples import Sample
from rl_trainer.algorithm.step_totals import Rates
from rl_trainer.errors import TrainingFailedError
from rl_trainer.model import optimizer
from rl_trainer.model.learner import Learner
from rl_trainer.model.policy import Policy
from tests.models import states
from tests.samples.documents import a_head, a_task
from tests.unit.rl_trainer.conftest import MakeLearner, MakeSamples, MakeSpec


def episode(reward: float, values: list[float], penalties: list[float] | None = None) -> Episode:
    taken = None if penalties is None else torch.tensor(penalties, dtype=torch.float64)
    return Episode(
        reward=reward,
        num_tokens=len(values),
        values=torch.tensor(values, dtype=torch.float64),
        penalties=taken,
    )


def section(**options: float) -> Estimator:
    return Estimator.model_validate({"kind": "GAE"} | options)


def test_returns_by_hand() -> None:
    """γ = λ = 1: what is still to come; γ = 1/2, λ = 0: the next value, halved."""
    sample = episode(1.0, [0.5, 0.25, 0.0])
    assert gae.returns(sample, section()).tolist() == [1.0, 1.0, 1.0]
    assert gae.returns(sample, section(gamma=0.5, lam=0.0)).tolist() == [0.125, 0.0, 1.0]
    # δ = (0.25 - 0.5, 0 - 0.25, 1 - 0); Â = (-0.25 - 0.125 + 0.25, -0.25 + 0.5, 1) at λ = 1/2.
    assert gae.returns(sample, section(lam=0.5)).tolist() == [0.375, 0.5, 1.0]
    penalised = episode(1.0, [0.0, 0.0], [0.25, 0.5])
    assert gae.returns(penalised, section()).tolist() == [0.25, 0.5]


@given(
    st.lists(
        st.tuples(st.floats(-2, 2), st.lists(st.floats(-3, 3), min_size=1, max_size=6)),
        min_size=1,
        max_size=4,
    ),
    st.floats(0.5, 1),
    st.floats(0, 1),
)
def test_advantages_are_the_normalised_sums_of_the_paper(
    episodes: list[tuple[float, list[float]]], gamma: float, lam: float
) -> None:
    raw: list[list[float]] = []
    for reward, values in episodes:
        rewards, after = [0.0] * (len(values) - 1) + [reward], [*values[1:], 0.0]
        deltas = [r + gamma * v - u for r, v, u in zip(rewards, after, values, strict=True)]
        raw.append(
            [
                math.fsum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, len(deltas)))
                for t in range(len(deltas))
            ]
        )
    flat = [value for row in raw for value in row]
    variance = statistics.variance(flat) if len(flat) > 1 else 1.0
    mean, scale = statistics.fmean(flat), 1 / math.sqrt(variance + 1e-8)
    given_groups = [[episode(reward, values)] for reward, values in episodes]
    options = section(gamma=gamma, lam=lam)
    advantages = ESTIMATORS["GAE"](given_groups, options, State())
    for (advantage,), row, (sample,) in zip(advantages, raw, given_groups, strict=True):
        expected = [(number - mean) * scale for number in row]
        shown = advantage.tolist() if isinstance(advantage, torch.Tensor) else [advantage]
        assert shown * (len(row) // len(shown)) == pytest.approx(expected, abs=1e-6)
        assert sample.values is not None
        wanted = [a + v for a, v in zip(row, sample.values.tolist(), strict=True)]
        assert gae.returns(sample, options).tolist() == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(
    ("now", "before", "clip", "loss", "gradient"),
    [
        (0.5, 0.0, None, 0.125, -0.5),
        (0.5, 0.0, 0.2, 0.32, 0.0),  # held at 0.2: farther from 1, so it counts, without gradient
        (0.1, 0.0, 0.2, 0.405, -0.9),
        (1.5, 0.0, 0.2, 0.32, 0.0),
        (2.5, 2.4, 0.2, 1.125, 1.5),
    ],
)
def test_the_value_loss_by_hand(
    now: float, before: float, clip: float | None, loss: float, gradient: float
) -> None:
    """The return is 1."""
    values = torch.tensor([now], dtype=torch.float64, requires_grad=True)
    losses = value.loss(
        values, torch.ones(1).double(), old=torch.tensor([before]).double(), clip=clip
    )
    torch.autograd.backward(losses.sum())
    assert values.grad is not None
    assert losses.item() == pytest.approx(loss)
    assert values.grad.item() == pytest.approx(gradient)


CRITIC: dict[str, Any] = {"learningRate": 1e-2}


def algorithm(**critic: Any) -> dict[str, Any]:
    return {"estimator": {"kind": "GAE"}, "critic": CRITIC | critic}


def with_returns(samples: list[Sample], target: float = 0.7) -> list[Sample]:
    return [
        dataclasses.replace(
            sample,
            returns=torch.full((sample.num_generated,), target),
            rollout=str(number),
            group=str(number // 2),
        )
        for number, sample in enumerate(samples)
    ]


def test_the_critic_starts_at_zero_and_learns_what_comes(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner, samples = make_learner(algorithm=algorithm()), with_returns(make_samples())
    before = learner.assess(samples)
    assert [
        assessed.values.tolist() for assessed in before.values() if assessed.values is not None
    ] == [[0.0] * sample.num_generated for sample in samples]
    losses = [learner.update(samples, step=step).value_loss for step in range(1, 25)]
    assert losses[0] == pytest.approx(0.245)
    assert losses[-1] is not None
    assert losses[-1] < 0.02


@pytest.mark.parametrize(
    ("recorded", "used"),
    [
        pytest.param(None, Rates(policy=0.005, critic=0.01), id="by the manifest"),
        pytest.param(Rates(policy=0.3, critic=0.1), Rates(policy=0.3, critic=0.1), id="recorded"),
        pytest.param(Rates(policy=0.3), Rates(policy=0.3, critic=0.01), id="of an earlier release"),
    ],
)
def test_a_step_that_is_made_again_has_its_recorded_rates(
    recorded: Rates | None, used: Rates, make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    schedule = {"learningRate": 0.01, "schedule": "Linear"}
    learner = make_learner(
        algorithm=algorithm(learningRate=0.02), training={"steps": 4, "optimizer": schedule}
    )
    update = learner.update(with_returns(make_samples()), step=2, rates=recorded)
    assert Rates(policy=update.learning_rate, critic=update.critic_learning_rate) == used
    critic = learner.models.critic
    assert critic is not None
    assert {group["lr"] for group in learner.optimizer.param_groups} == {used.policy}
    assert {group["lr"] for group in critic.optimizer.param_groups} == {used.critic}


def test_warm_up_trains_the_critic_alone(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner, samples = (
        make_learner(algorithm=algorithm(warmupSteps=2)),
        with_returns(make_samples()),
    )
    before = {name: parameter.detach().clone() for name, parameter in learner.parameters.items()}

    def unchanged() -> bool:
        return all(
            torch.equal(before[name], parameter) for name, parameter in learner.parameters.items()
        )

    losses = []
    for step in (1, 2):
        update = learner.update(samples, step=step)
        assert (update.loss, update.gap.tokens, unchanged()) == (0.0, 0, True)
        assert update.entropy is None
        assert update.value_loss is not None
        losses.append(update.value_loss)
    assert losses[1] < losses[0]
    assert learner.update(samples, step=3).entropy is not None
    assert not unchanged()


@pytest.mark.parametrize("clip", [None, 0.1])
def test_packing_changes_no_value_loss(
    clip: float | None, make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    samples = with_returns(make_samples([3, 9, 5, 12, 7, 4, 16, 6]))
    once = make_learner(algorithm=algorithm(valueClip=clip, passesPerStep=2))
    often = make_learner(
        algorithm=algorithm(valueClip=clip, passesPerStep=2, maxTokensPerMicrobatch=16)
    )
    for step in (1, 2):
        update, other = once.update(samples, step=step), often.update(samples, step=step)
        assert other.value_loss == pytest.approx(update.value_loss, abs=1e-5)


def test_a_critic_may_have_a_model_of_its_own(
    load_policy: Callable[[], Policy], make_spec: MakeSpec, make_samples: MakeSamples
) -> None:
    own, policy = load_policy(), load_policy()
    with torch.no_grad():
        for parameter in own.module.parameters():
            parameter.mul_(0.5)
    learner = Learner(policy, make_spec(algorithm=algorithm()), critic=own)
    before = {name: parameter.detach().clone() for name, parameter in learner.parameters.items()}
    started = {name: tensor.clone() for name, tensor in learner.auxiliary().items()}
    name = "critic/weights/layers.embed_tokens.weight"
    assert torch.equal(started[name] * 2, before["model.embed_tokens.weight"])
    samples = [
        dataclasses.replace(with_return, advantage=0.0)
        for with_return in with_returns(make_samples())
    ]
    for step in (1, 2):  # a head of zeros passes no gradient on
        learner.update(samples, step=step)
    assert not torch.equal(learner.auxiliary()[name], started[name])
    assert all(torch.equal(parameter, before[key]) for key, parameter in learner.parameters.items())


def test_a_critic_makes_updates_of_its_own_size(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    """Of three prompts the policy makes one update; the critic two passes of one prompt each."""
    learner = make_learner(algorithm=algorithm(promptsPerUpdate=1, passesPerStep=2))
    samples = [
        dataclasses.replace(sample, group=f"g{index % 3}")
        for index, sample in enumerate(with_returns(make_samples()))
    ]
    learner.update(samples, step=1)
    own = learner.auxiliary()
    assert updates(
        {name.removeprefix("critic/moments/"): tensor for name, tensor in own.items()}
    ) == {6}
    assert updates(optimizer.state(learner.optimizer, learner.parameters)) == {1}


def test_the_critics_optimizer_has_the_policys_options_and_its_own_rate(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    """Warm-up over 4 steps, then a line down to a tenth at step 8."""
    options = {
        "schedule": "Linear",
        "warmupSteps": 4,
        "minimumRatio": 0.1,
        "beta1": 0.8,
        "beta2": 0.95,
        "epsilon": 1e-6,
        "weightDecay": 0.2,
    }
    learner = make_learner(
        algorithm=algorithm(learningRate=1e-2), training={"optimizer": options, "steps": 8}
    )
    critic = learner.models.critic
    assert critic is not None
    groups = critic.optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == [0.2, 0.0]
    assert {(group["betas"], group["eps"]) for group in groups} == {((0.8, 0.95), 1e-6)}
    samples, rates = with_returns(make_samples()), []
    for step in (1, 4, 6, 8):
        learner.update(samples, step=step)
        rates.append({group["lr"] for group in groups})
    assert [rate for (rate,) in rates] == pytest.approx([2.5e-3, 1e-2, 5.5e-3, 1e-3])


def updates(moments: dict[str, torch.Tensor]) -> set[float]:
    """That an optimizer has made, of each parameter."""
    return {float(moment) for name, moment in moments.items() if name.startswith("step/")}


def restored(learner: Learner, other: Learner) -> None:
    with torch.no_grad():
        for name, parameter in other.parameters.items():
            parameter.copy_(learner.parameters[name])
    saved = optimizer.state(learner.optimizer, learner.parameters)
    optimizer.restore(other.optimizer, other.parameters, states.stored(saved), other.training)
    other.restore_auxiliary(states.stored(learner.auxiliary()))


def test_a_restored_critic_goes_on_bit_for_bit(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    first, other = (make_learner(algorithm=algorithm()) for _ in range(2))
    samples = with_returns(make_samples())
    first.update(samples, step=1)
    restored(first, other)
    for learner in (first, other):
        learner.update(samples, step=2)
    mine, theirs = first.auxiliary(), other.auxiliary()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())


def test_returns_that_are_not_finite_name_their_rollout(
    make_learner: MakeLearner, make_samples: MakeSamples
) -> None:
    learner, samples = make_learner(algorithm=algorithm()), with_returns(make_samples())
    samples[3] = dataclasses.replace(
        samples[3], returns=torch.full((samples[3].num_generated,), math.inf)
    )
    with pytest.raises(TrainingFailedError, match="the critic's loss of rollout 3 is not finite"):
        learner.update(samples, step=1)


def test_a_batch_holds_advantages_and_returns_of_tokens() -> None:
    rollout = a_head(a_task(0, group_size=1), 0, reward=1.0)
    context = Context(
        assessments={rollout.id: Assessment(values=torch.tensor([0.5, 0.0], dtype=torch.float64))}
    )
    section = Algorithm.model_validate({"estimator": {"kind": "GAE", "lam": 0.0}, "critic": {}})
    (member,) = credit.members([[rollout]], section, context)
    assert unpack_float32(member.token_returns) == [0.0, 1.0]
    # δ = (0 - 0.5, 1 - 0), normalised.
    assert unpack_float32(member.token_advantages) == pytest.approx(
        [-math.sqrt(0.5), math.sqrt(0.5)], abs=1e-6
    )
