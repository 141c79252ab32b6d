from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators import ESTIMATORS, rae
from rl_trainer.algorithm.estimators.records import Episode, State

REWARDS = st.lists(st.floats(-100, 100), min_size=2, max_size=12)
COMPARING = ("GRPO", "GRPOBatchStd", "DrGRPO", "RLOO", "OPO", "REINFORCEPlusPlusBaseline")
ROOT = math.sqrt(0.5)


def estimate(kind: str, groups: list[list[tuple[float, int]]], **options: Any) -> list[Any]:
    """Advantages of (reward, tokens) pairs, all groups after each other, tensors as lists."""
    section = Estimator.model_validate({"kind": kind} | options)
    episodes = [
        [Episode(reward=reward, num_tokens=tokens) for reward, tokens in row] for row in groups
    ]
    advantages = ESTIMATORS[kind](episodes, section, State())
    assert [len(row) for row in advantages] == [len(row) for row in groups]
    return [
        advantage.tolist() if isinstance(advantage, torch.Tensor) else advantage
        for row in advantages
        for advantage in row
    ]


def one_group(kind: str, rewards: list[float], **options: Any) -> list[Any]:
    return estimate(kind, [[(reward, 1) for reward in rewards]], **options)


def test_every_estimator_kind_of_the_manifest_has_a_function() -> None:
    assert set(ESTIMATORS) == set(Estimator.model_json_schema()["properties"]["kind"]["enum"])


@pytest.mark.parametrize(
    ("kind", "group", "expected"),
    [
        # mean 1/4, squares 9/16 + 3/16 = 3/4, sample variance 1/4, standard deviation 1/2.
        ("GRPO", [(1.0, 1), (0.0, 2), (0.0, 3), (0.0, 4)], [1.5, -0.5, -0.5, -0.5]),
        ("GRPO", [(1.0, 1), (0.0, 1)], [ROOT, -ROOT]),
        ("GRPOBatchStd", [(1.0, 1), (0.0, 2), (0.0, 3), (0.0, 4)], [1.5, -0.5, -0.5, -0.5]),
        ("MaxRL", [(1.0, 1), (0.0, 2), (0.0, 3), (0.0, 4)], [3.0, -1.0, -1.0, -1.0]),
        ("MaxRL", [(0.0, 1), (-1.0, 1)], [0.0, 0.0]),
        # Baselines 0, then 0.05 and 0.05 x 0.95.
        ("RAE", [(1.0, 1), (0.0, 3), (1.0, 2)], [1.0, -0.05, 0.9525]),
        ("DrGRPO", [(1.0, 1), (0.0, 2), (0.0, 3), (0.0, 4)], [0.75, -0.25, -0.25, -0.25]),
        # The others' means are 0 and three times 1/3.
        ("RLOO", [(1.0, 1), (0.0, 2), (0.0, 3), (0.0, 4)], [1.0, -1 / 3, -1 / 3, -1 / 3]),
        # Baseline (1 x 1 + 3 x 0) / 4.
        ("OPO", [(1.0, 1), (0.0, 3)], [0.75, -0.25]),
        # Centred ±1/2, over 1 + 3 tokens: mean -1/4, squares 9/16 + 3/16, variance 1/4.
        ("REINFORCEPlusPlusBaseline", [(1.0, 1), (0.0, 3)], [1.5, -0.5]),
        ("REINFORCEPlusPlus", [(1.0, 1), (0.0, 3)], [1.5, -0.5]),
    ],
)
def test_advantages_by_hand(
    kind: str, group: list[tuple[float, int]], expected: list[float]
) -> None:
    assert estimate(kind, [group]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", [*COMPARING, "REINFORCEPlusPlus"])
@pytest.mark.parametrize("reward", [0.0, 1.0, -0.5])
def test_equal_rewards_give_zero_advantages(kind: str, reward: float) -> None:
    assert one_group(kind, [reward] * 4) == pytest.approx([0.0] * 4, abs=1e-9)
    assert one_group("PassAtK", [reward] * 4, k=2) == [0.0] * 4
    assert one_group("PassAtKStd", [reward] * 4, k=2) == [0.0] * 4
    assert one_group("MaxRL", [reward] * 4) == [0.0] * 4


@pytest.mark.parametrize("kind", COMPARING)
@given(reward=st.floats(-100, 100), lengths=st.lists(st.integers(1, 50), min_size=2, max_size=16))
@example(reward=0.1, lengths=[1] * 12)
@example(reward=0.8, lengths=[3, 7] * 7)
def test_equal_rewards_give_exact_zeros(kind: str, reward: float, lengths: list[int]) -> None:
    """``dropZeroAdvantage`` takes whatever is not 0 for signal."""
    assert estimate(kind, [[(reward, length) for length in lengths]]) == [0.0] * len(lengths)


def test_a_group_of_one_needs_no_comparison_under_reinforce_plus_plus() -> None:
    advantages = estimate("REINFORCEPlusPlus", [[(1.0, 1)], [(0.0, 1)]])
    assert advantages == pytest.approx([ROOT, -ROOT], rel=1e-6)
    assert estimate("REINFORCEPlusPlus", [[(3.0, 1)]]) == [0.0]


@given(REWARDS)
def test_estimators_agree_with_the_statistics_module(rewards: list[float]) -> None:
    mean, deviation = statistics.fmean(rewards), statistics.stdev(rewards)
    centred = [reward - mean for reward in rewards]
    assert one_group("DrGRPO", rewards) == pytest.approx(centred, abs=1e-9)
    assert one_group("GRPO", rewards) == pytest.approx(
        [reward / (deviation + 1e-6) for reward in centred], abs=1e-6
    )
    leave_one_out = [
        reward - statistics.fmean(rewards[:index] + rewards[index + 1 :])
        for index, reward in enumerate(rewards)
    ]
    assert one_group("RLOO", rewards) == pytest.approx(leave_one_out, abs=1e-9)


@given(st.lists(REWARDS, min_size=1, max_size=5))
def test_grpo_of_the_batch_divides_by_the_deviation_of_all_rewards(
    groups: list[list[float]],
) -> None:
    scale = statistics.stdev([reward for group in groups for reward in group]) + 1e-6
    expected = [(reward - statistics.fmean(group)) / scale for group in groups for reward in group]
    advantages = estimate("GRPOBatchStd", [[(reward, 1) for reward in row] for row in groups])
    assert advantages == pytest.approx(expected, abs=1e-6)


@given(st.integers(2, 12), st.data())
def test_max_rl_weighs_right_answers_by_one_over_the_share_of_them(
    size: int, data: st.DataObject
) -> None:
    """Of K answers c are right: K/c - 1 for each of those, -1 for the others."""
    right = data.draw(st.integers(1, size))
    advantages = one_group("MaxRL", [1.0] * right + [0.0] * (size - right))
    assert advantages == pytest.approx([size / right - 1] * right + [-1.0] * (size - right))


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=7), st.data())
def test_pass_at_k_by_deviation_of_all_members_is_verls(
    rewards: list[float], data: st.DataObject
) -> None:
    """Its ``grpo_passk``: the best gets what it beats the second by, over the deviation."""
    best, second = sorted(rewards, reverse=True)[:2]
    expected = [0.0] * len(rewards)
    expected[rewards.index(best)] = (best - second) / (statistics.stdev(rewards) + 1e-6)
    actual = one_group("PassAtKStd", rewards, k=len(rewards))
    assert actual == pytest.approx(expected, abs=1e-6)
    k = data.draw(st.integers(2, len(rewards)))
    scale = statistics.stdev(rewards) + 1e-6
    plain = [gain / scale for gain in one_group("PassAtK", rewards, k=k)]
    assert one_group("PassAtKStd", rewards, k=k) == pytest.approx(plain, abs=1e-6)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.lists(st.floats(-9, 9), min_size=1, max_size=4)),
        min_size=1,
        max_size=6,
    ),
    st.floats(0, 0.99),
    st.floats(-1, 1),
)
def test_rae_compares_with_the_moving_mean_of_the_source(
    groups: list[tuple[str, list[float]]], decay: float, start: float
) -> None:
    section = Estimator.model_validate({"kind": "RAE", "baselineDecay": decay})
    state = State(baselines={"a": start})
    episodes = [
        [Episode(reward=reward, num_tokens=1, source=source) for reward in rewards]
        for source, rewards in groups
    ]
    known, expected = {"a": start}, []
    for source, rewards in groups:
        for reward in rewards:
            baseline = known.get(source, 0.0)
            expected.append(reward - baseline)
            known[source] = decay * baseline + (1 - decay) * reward
    actual = [each for row in ESTIMATORS["RAE"](episodes, section, state) for each in row]
    assert actual == pytest.approx(expected)
    assert rae.baselines_after(episodes, section, state) == pytest.approx(known)
    assert state.baselines == {"a": start}


@given(st.lists(st.tuples(st.floats(-9, 9), st.integers(1, 50)), min_size=2, max_size=9))
def test_the_optimal_baseline_makes_the_weighted_sum_vanish(group: list[tuple[float, int]]) -> None:
    advantages = estimate("OPO", [group])
    assert math.fsum(a * tokens for a, (_, tokens) in zip(advantages, group, strict=True)) == (
        pytest.approx(0, abs=1e-9)
    )


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=7), st.data())
def test_pass_at_k_is_the_mean_over_all_subsets(rewards: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(2, len(rewards)))
    expected = []
    for index, reward in enumerate(rewards):
        others = rewards[:index] + rewards[index + 1 :]
        gains = [
            max(reward, *subset) - max(subset) for subset in itertools.combinations(others, k - 1)
        ]
        expected.append(statistics.fmean(gains))
    assert one_group("PassAtK", rewards, k=k) == pytest.approx(expected, abs=1e-9)


def test_pass_at_k_with_k_equal_to_group_size_rewards_only_the_best() -> None:
    assert one_group("PassAtK", [0.2, 1.0, 0.7], k=3) == pytest.approx([0.0, 0.3, 0.0])


@given(REWARDS, st.floats(-10, 10), st.sampled_from([*COMPARING, "REINFORCEPlusPlus"]))
def test_a_constant_reward_offset_changes_no_advantage(
    rewards: list[float], bonus: float, kind: str
) -> None:
    # Where all but rounding is equal, dividing by the spread makes noise of any size.
    rewards = [round(reward, 3) for reward in rewards]
    shifted = one_group(kind, [reward + bonus for reward in rewards])
    assert shifted == pytest.approx(one_group(kind, rewards), abs=1e-3)


def test_returns_of_tokens_are_discounted_and_normalised() -> None:
    """Reward 1 after 3 tokens at γ = 1/2: returns 1/4, 1/2, 1; and a single token worth 0."""
    advantages = estimate("REINFORCEPlusPlus", [[(1.0, 3), (0.0, 1)]], gamma=0.5)
    returns = [0.25, 0.5, 1.0, 0.0]
    mean, deviation = statistics.fmean(returns), statistics.stdev(returns)
    expected = [(value - mean) / deviation for value in returns]
    assert advantages[0] == pytest.approx(expected[:3], abs=1e-6)
    assert advantages[1] == pytest.approx(expected[3], abs=1e-6)


@pytest.mark.parametrize("kind", ["GRPO", "DrGRPO", "RLOO", "OPO"])
def test_penalties_of_tokens_lower_the_reward(kind: str) -> None:
    penalised = Episode(
        reward=1.5, num_tokens=2, penalties=torch.tensor([0.2, 0.3], dtype=torch.float64)
    )
    plain = Episode(reward=1.0, num_tokens=2)
    other = Episode(reward=0.25, num_tokens=4)
    section = Estimator.model_validate({"kind": kind})
    (advantages,) = ESTIMATORS[kind]([[penalised, other]], section, State())
    (expected,) = ESTIMATORS[kind]([[plain, other]], section, State())
    assert advantages == pytest.approx(expected)
