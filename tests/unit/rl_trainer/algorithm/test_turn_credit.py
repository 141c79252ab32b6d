"""Advantages of turns and of messages, against numbers by hand and other ways to compute them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.arrays import pack_float32, pack_int32, unpack_float32
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import (
    RewardPart,
    Rollout,
    RolloutError,
    StopReason,
    TokenRange,
    Turn,
    VersionSpan,
)
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.estimator import Estimator, Shaping
from rl_trainer.algorithm import credit, shaping
from rl_trainer.algorithm.assessment import Context
from rl_trainer.algorithm.estimators import ESTIMATORS, gae
from rl_trainer.algorithm.estimators.records import Episode, State
from rl_trainer.algorithm.estimators.reinforce_plus_plus import token_rewards
from rl_trainer.algorithm.rollout_faults import fault, head_fault
from rl_trainer.algorithm.shaping import Scored
from tests.samples.documents import a_rollout, a_task

SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def episode(turns: list[int], reward: float, **known: Any) -> Episode:
    values: dict[str, Any] = {"reward": reward, "num_tokens": sum(turns), "turns": tuple(turns)}
    values |= {name: torch.tensor(numbers, dtype=torch.float64) for name, numbers in known.items()}
    return Episode(**values)


def estimate(groups: list[list[Episode]], kind: str, **options: Any) -> list[list[float]]:
    """Advantages of each token of each member."""
    section = Estimator.model_validate({"kind": kind, "perTurn": True} | options)
    advantages = ESTIMATORS[kind](groups, section, State())
    return [
        advantage.tolist()
        if isinstance(advantage, torch.Tensor)
        else [advantage] * episode.num_tokens
        for row, group in zip(advantages, groups, strict=True)
        for advantage, episode in zip(row, group, strict=True)
    ]


def whitened(rows: list[list[float]]) -> list[list[float]]:
    everything = [value for row in rows for value in row]
    mean = math.fsum(everything) / len(everything)
    squares = math.fsum((value - mean) ** 2 for value in everything)
    scale = math.sqrt(squares / (len(everything) - 1) + 1e-8) if len(everything) > 1 else 1.0
    return [[(value - mean) / scale for value in row] for row in rows]


def test_returns_are_discounted_by_turns_however_long_they_are() -> None:
    # Returns 1/4, 1/2, 1 of turns of 1, 3 and 2 tokens, and 0 of a wrong answer in one turn.
    groups = [[episode([1, 3, 2], 1.0)], [episode([2], 0.0)]]
    by_hand = [[0.25, 0.5, 0.5, 0.5, 1.0, 1.0], [0.0, 0.0]]
    advantages = estimate(groups, "REINFORCEPlusPlus", gamma=0.5)
    for row, wanted in zip(advantages, whitened(by_hand), strict=True):
        assert row == pytest.approx(wanted, abs=1e-9)


def test_penalties_of_a_turn_arrive_together() -> None:
    sample = episode([2, 1], 1.0, penalties=[0.1, 0.3, 0.2])
    # r = (-0.4, 0.8): returns 0 and 0.8.
    (advantages,) = estimate([[sample]], "REINFORCEPlusPlus", gamma=0.5)
    assert advantages == pytest.approx(whitened([[0.0, 0.0, 0.8]])[0], abs=1e-9)


def test_generalized_advantages_of_turns_by_hand() -> None:
    sample = episode([2, 1, 2], 1.0, values=[0.5, 9.0, 0.25, 0.75, 9.0])
    section = Estimator.model_validate({"kind": "GAE", "gamma": 0.8, "lam": 0.5, "perTurn": True})
    # V = (1/2, 1/4, 3/4); δ = (-0.3, 0.35, 0.25); Â = (-0.12, 0.45, 0.25).
    assert gae.returns(sample, section).tolist() == pytest.approx([0.38, 0.38, 0.7, 1.0, 1.0])
    (advantages,) = estimate([[sample]], "GAE", gamma=0.8, lam=0.5)
    assert advantages == pytest.approx(whitened([[-0.12, -0.12, 0.45, 0.25, 0.25]])[0], abs=1e-9)


@given(SHAPES, SHAPES, st.floats(0.1, 1), st.floats(0, 1), st.data())
def test_per_turn_credit_treats_turns_as_tokens(
    first: list[int], second: list[int], gamma: float, lam: float, data: st.DataObject
) -> None:
    numbers = st.floats(-2, 2)
    groups, summed = [], []
    for turns in (first, second):
        reward, length = data.draw(numbers), sum(turns)
        of_tokens = st.lists(numbers, min_size=length, max_size=length)
        values, penalties = data.draw(of_tokens), data.draw(of_tokens)
        groups.append([episode(turns, reward, values=values, penalties=penalties)])
        starts = [sum(turns[:index]) for index in range(len(turns))]
        merged = [
            math.fsum(penalties[start : start + length])
            for start, length in zip(starts, turns, strict=True)
        ]
        heads = [values[start] for start in starts]
        summed.append(episode([1] * len(turns), reward, values=heads, penalties=merged))
    section = Estimator(kind="GAE", gamma=gamma, lam=lam, per_turn=True)
    single = Estimator(kind="GAE", gamma=gamma, lam=lam)
    for (group,), token, turns in zip(groups, summed, (first, second), strict=True):
        steps = gae.returns(token, single).tolist()
        wanted = [value for value, tokens in zip(steps, turns, strict=True) for _ in range(tokens)]
        assert gae.returns(group, section).tolist() == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("kind", ["REINFORCEPlusPlus", "GAE"])
def test_a_single_turn_gets_one_advantage(kind: str) -> None:
    groups = [[episode([length], 1.0, values=[0.5] * length)] for length in (1, 4)]
    advantages = estimate(groups, kind, gamma=0.5)
    assert [advantage for row in advantages for advantage in row] == pytest.approx(
        [0.0] * 5, abs=1e-9
    )


RIGHT, WRONG = 1.0, 0.5
TURNS: dict[str, Any] = {"turns": (2, 1), "faulty": (True, False), "num_tokens": 3, "num_turns": 2}


@pytest.mark.parametrize(
    ("options", "reward", "advantage", "expected"),
    [
        ({}, RIGHT, 0.7, 0.7),
        ({"capFaultyTurns": True}, RIGHT, 0.7, [0.0, 0.0, 0.7]),
        ({"capFaultyTurns": True}, WRONG, -0.7, [-0.7] * 3),
        ({"capFaultyTurns": True}, WRONG, [0.1, -0.2, 0.3], [0.0, -0.2, 0.3]),
        ({"forceSign": True}, RIGHT, -0.7, 0.0),
        ({"forceSign": True}, RIGHT, 0.7, 0.7),
        ({"forceSign": True}, WRONG, 0.7, 0.0),
        ({"forceSign": True}, WRONG, [0.1, -0.2, 0.3], [0.0, -0.2, 0.0]),
        ({"capFaultyTurns": True, "forceSign": True}, RIGHT, [-0.1, 0.2, -0.3], [0.0] * 3),
        ({"capFaultyTurns": True, "forceSign": True}, WRONG, -0.7, [-0.7] * 3),
    ],
)
def test_advantages_of_messages_by_hand(
    options: dict[str, bool], reward: float, advantage: Any, expected: Any
) -> None:
    scored = Scored(reward=reward, truncated=False, **TURNS)
    if isinstance(advantage, list):
        advantage = torch.tensor(advantage, dtype=torch.float64)
    limited = shaping.limited(advantage, scored, Shaping.model_validate(options))
    assert (limited.tolist() if isinstance(limited, torch.Tensor) else limited) == expected


def a_turn(start: int, end: int, **changes: Any) -> Turn:
    return Turn(
        request=TokenRange(start=start - 1, end=start),
        response=TokenRange(start=start, end=end),
        stop_reason=StopReason.STOP,
        text="",
        **changes,
    )


def two_turns(reward: float, *, number: int = 0, faulty: bool = False) -> Rollout:
    error = RolloutError(kind="model", message="no call") if faulty else None
    return a_rollout(
        a_task(0, group_size=2),
        number,
        reward=reward,
        tokens=pack_int32([5, 6, 7, 8, 9, 2]),
        mask=bytes([0, 1, 1, 0, 1, 1]),
        logprobs=pack_float32([0, -1, -1, 0, -1, -1]),
        spans=[VersionSpan(version=1, step=0, start=a, end=a + 2) for a in (1, 4)],
        turns=[a_turn(1, 3, error=error), a_turn(4, 6)],
    )


def test_a_batch_holds_the_advantages_of_messages() -> None:
    group = [
        RolloutHead.of(two_turns(reward, number=number, faulty=True))
        for number, reward in enumerate((1.0, 0.0))
    ]
    algorithm = Algorithm.model_validate(
        {
            "groupSize": 2,
            "estimator": {"kind": "RLOO"},
            "shaping": {"capFaultyTurns": True, "forceSign": True, "advScaling": 2.0},
        }
    )
    right, wrong = credit.members([group], algorithm, Context())
    assert unpack_float32(right.token_advantages) == [0.0, 0.0, 2.0, 2.0]
    assert unpack_float32(wrong.token_advantages) == [-2.0] * 4


def test_a_batch_holds_the_advantages_of_turns() -> None:
    algorithm = Algorithm.model_validate(
        {"groupSize": 1, "estimator": {"kind": "REINFORCEPlusPlus", "gamma": 0.5, "perTurn": True}}
    )
    (member,) = credit.members([[RolloutHead.of(two_turns(1.0))]], algorithm, Context())
    expected = whitened([[0.5, 0.5, 1.0, 1.0]])[0]
    assert unpack_float32(member.token_advantages) == pytest.approx(expected, abs=1e-6)


def test_turns_that_do_not_cover_what_was_generated_make_a_rollout_unusable() -> None:
    good = two_turns(1.0)
    assert fault(good, vocabulary=16, max_tokens=8) == ""
    assert head_fault(RolloutHead.of(good), max_tokens=8) == ""
    for turns in ([a_turn(1, 3)], [a_turn(1, 3), a_turn(4, 7)], [a_turn(1, 3), a_turn(3, 6)]):
        broken = good.model_copy(update={"turns": turns})
        assert "its turns do not cover" in fault(broken, vocabulary=16, max_tokens=8)
    empty = good.model_copy(update={"turns": [a_turn(1, 1), a_turn(1, 3), a_turn(4, 6)]})
    assert "no generated token" in head_fault(RolloutHead.of(empty), max_tokens=8)
    short = good.model_copy(update={"turns": [a_turn(1, 3)]})
    assert "its turns do not cover" in head_fault(RolloutHead.of(short), max_tokens=8)


def of_an_environment(*rewards: float | None, weight: float = 1.0, other: float = 0.0) -> Rollout:
    """Two turns of two tokens, with what an environment gave in each and another scorer's part."""
    rollout = two_turns(weight * math.fsum(reward or 0.0 for reward in rewards) + other)
    earned = math.fsum(reward or 0.0 for reward in rewards)
    turns = [
        turn.model_copy(update={"reward": reward})
        for turn, reward in zip(rollout.turns, rewards, strict=True)
    ]
    parts = [
        RewardPart(scorer="Environment", value=earned, weight=weight),
        RewardPart(scorer="ExactMatch", value=other, weight=1.0),
    ]
    return rollout.model_copy(update={"turns": turns, "parts": parts})


def batch_of(rollout: Rollout, **estimator: Any) -> list[float]:
    algorithm = Algorithm.model_validate(
        {"groupSize": 1, "estimator": {"kind": "REINFORCEPlusPlus", **estimator}}
    )
    (member,) = credit.members([[RolloutHead.of(rollout)]], algorithm, Context())
    return unpack_float32(member.token_advantages)


def test_an_environments_rewards_arrive_with_their_turns() -> None:
    # r = (1, 1/2 + 1/4): returns 1 + 3/8 and 3/4.
    advantages = batch_of(of_an_environment(1.0, 0.5, other=0.25), gamma=0.5, perTurn=True)
    expected = whitened([[1.375, 1.375, 0.75, 0.75]])[0]
    assert advantages == pytest.approx(expected, abs=1e-6)


def test_a_turn_without_a_reward_earns_nothing_and_weights_count() -> None:
    advantages = batch_of(of_an_environment(3.0, None, weight=0.5), gamma=0.5, perTurn=True)
    assert advantages == pytest.approx(whitened([[1.5, 1.5, 0.0, 0.0]])[0], abs=1e-6)


def test_token_by_token_an_environments_reward_comes_with_its_turns_last_token() -> None:
    # r = (0, 2, 0, 1): returns 1 + 1/8, 2 + 1/4, 1/2, 1.
    advantages = batch_of(of_an_environment(2.0, 1.0), gamma=0.5)
    assert advantages == pytest.approx(whitened([[1.125, 2.25, 0.5, 1.0]])[0], abs=1e-6)


def test_rewards_of_turns_count_nothing_without_their_scorer() -> None:
    rollout = of_an_environment(1.0, 0.5)
    judged = rollout.model_copy(
        update={"parts": [RewardPart(scorer="ExactMatch", value=1.0, weight=1.0)], "reward": 1.0}
    )
    advantages = batch_of(judged, gamma=0.5, perTurn=True)
    assert advantages == pytest.approx(whitened([[0.5, 0.5, 1.0, 1.0]])[0], abs=1e-6)


@given(SHAPES, st.floats(-2, 2), st.data())
def test_rewards_by_turns_sum_to_the_episodes(
    turns: list[int], reward: float, data: st.DataObject
) -> None:
    by_turn = data.draw(st.lists(st.floats(-2, 2), min_size=len(turns), max_size=len(turns)))
    sample = replace(episode(turns, reward), turn_rewards=tuple(by_turn))
    assert math.fsum(token_rewards(sample).tolist()) == pytest.approx(sample.total, abs=1e-9)
