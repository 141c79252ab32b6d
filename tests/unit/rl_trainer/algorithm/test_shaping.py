from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import StopReason, VersionSpan
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.estimator import Overlong, Shaping
from rl_trainer.algorithm import credit, shaping
from rl_trainer.algorithm.assessment import Context
from rl_trainer.algorithm.shaping import Scored
from tests.samples.documents import a_head, a_task


def scored(reward: float, *, tokens: int = 4, turns: int = 1, truncated: bool = False) -> Scored:
    return Scored(reward=reward, num_tokens=tokens, num_turns=turns, truncated=truncated)


GROUPS = st.lists(
    st.builds(scored, st.sampled_from([0.0, 0.4, 0.6, 1.0]), turns=st.integers(1, 5)),
    min_size=1,
    max_size=9,
)


@pytest.mark.parametrize(
    ("tokens", "penalty"),
    [(1, 0), (80, 0), (81, -0.1), (90, -1.0), (100, -2.0), (5000, -2.0)],
)
def test_the_penalty_for_length_grows_over_the_buffer(tokens: int, penalty: float) -> None:
    section = Overlong(max_tokens=100, buffer_tokens=20, factor=2.0)
    assert shaping.length_penalty(tokens, section) == pytest.approx(penalty)


def test_few_turns_are_better_among_right_answers_and_many_among_wrong_ones() -> None:
    group = [
        scored(1.0, turns=1),
        scored(1.0, turns=3),
        scored(1.0, turns=2),
        scored(0.0, turns=1),
        scored(0.0, turns=4),
    ]
    assert shaping.turn_bonuses(group, size=0.1) == pytest.approx([0.1, -0.1, 0.0, -0.1, 0.1])
    assert shaping.rewards(group, Shaping(efficient_rewarding=0.1)) == pytest.approx(
        [1.1, 0.9, 1.0, -0.1, 0.1]
    )


def test_equal_turns_share_their_rank_and_a_single_one_gets_nothing() -> None:
    group = [scored(1.0, turns=2), scored(1.0, turns=2), scored(1.0, turns=5), scored(0.0)]
    assert shaping.turn_bonuses(group, size=1.0) == pytest.approx([0.5, 0.5, -1.0, 0.0])


@given(GROUPS)
def test_bonuses_sum_to_zero_and_stay_in_bounds(group: list[Scored]) -> None:
    bonuses = shaping.turn_bonuses(group, size=0.1)
    assert math.fsum(bonuses) == pytest.approx(0, abs=1e-9)
    assert all(abs(bonuse) <= 0.1 + 1e-12 for bonuse in bonuses)


@pytest.mark.parametrize(
    ("rewards", "kept"),
    [
        ([1, 1, 1, 1, 0], [0, 1, 2, 4]),  # one wrong: at most three right
        ([0, 0, 0, 0, 1], [0, 1, 4]),  # one right: at most two wrong
        ([1, 1, 1], [0, 1]),
        ([0, 0], [0]),
        ([1, 0, 1, 0], [0, 1, 2, 3]),
    ],
)
def test_the_larger_side_is_capped(rewards: list[float], kept: list[int]) -> None:
    group = [scored(reward) for reward in rewards]
    ones, section = [1.0] * len(group), Shaping(balance_sample=True)
    assert shaping.kept(group, ones, section, highest=ones) == kept


@pytest.mark.parametrize(
    ("section", "kept"),
    [
        ({}, [0, 1, 2, 3]),
        ({"dropZeroAdvantage": True}, [0, 2, 3]),
        ({"minimalAdvantage": 0.5}, [0, 3]),
        ({"skipNonPositiveAdvantage": True}, [0, 2]),
        ({"skipNonPositiveAdvantage": True, "minimalAdvantage": 0.5}, [0]),
        ({"dropTruncated": True}, [1, 2, 3]),
        ({"dropTruncated": True, "minimalAdvantage": 0.5}, [3]),
    ],
)
def test_filtered_members_are_left_out(section: dict[str, Any], kept: list[int]) -> None:
    group = [scored(1.0, truncated=True), scored(0.5), scored(0.4), scored(0.0)]
    advantages = [0.6, 0.0, 0.1, -0.5]
    magnitudes = [abs(advantage) for advantage in advantages]
    chosen = shaping.kept(group, magnitudes, Shaping.model_validate(section), highest=advantages)
    assert chosen == kept


@pytest.mark.parametrize(
    ("section", "rewards", "dull"),
    [
        ({}, [1.0, 1.0], False),
        ({"dynamicSampling": True}, [1.0, 1.0], True),
        ({"dynamicSampling": True}, [1.0, 0.99], False),
        ({"dynamicSampling": True, "minRewardSpread": 0.1}, [1.0, 0.99], True),
        ({"dynamicSampling": True, "minRewardSpread": 0.1}, [1.0, 0.5], False),
    ],
)
def test_dynamic_sampling_replaces_groups_without_spread(
    section: dict[str, Any], rewards: list[float], dull: bool
) -> None:
    group = [scored(reward) for reward in rewards]
    assert shaping.dull(group, Shaping.model_validate(section)) is dull


def group(rewards: list[float], **changes: Any) -> list[RolloutHead]:
    task = a_task(0, group_size=len(rewards))
    return [a_head(task, member, reward=reward, **changes) for member, reward in enumerate(rewards)]


def algorithm(**shaped: Any) -> Algorithm:
    return Algorithm.model_validate({"shaping": shaped, "estimator": {"kind": "DrGRPO"}})


def test_members_carry_scaled_advantages_and_leave_out_the_filtered() -> None:
    groups = [group([1.0, 0.0]), group([1.0, 1.0])]
    members = credit.members(groups, algorithm(advScaling=2.0, dropZeroAdvantage=True), Context())
    assert [(member.rollout, member.advantage) for member in members] == [
        (groups[0][0].id, 1.0),
        (groups[0][1].id, -1.0),
    ]
    assert all(member.token_advantages == b"" for member in members)


def test_members_without_a_positive_advantage_are_skipped() -> None:
    section = algorithm(skipNonPositiveAdvantage=True)
    better = group([1.0, 0.0, 0.5])
    members = credit.members([better], section, Context())
    assert [(member.rollout, member.advantage) for member in members] == [(better[0].id, 0.5)]
    assert credit.no_signal(better, section) == ""
    assert credit.no_signal(group([1.0, 1.0]), section) != ""


def test_a_group_whose_members_are_all_left_out_is_no_signal() -> None:
    cut = group([1.0, 0.0], stop_reason=StopReason.LENGTH)
    assert credit.no_signal(cut, algorithm()) == ""
    assert credit.no_signal(cut, algorithm(dropTruncated=True)) == credit.CUT_OFF
    equal = group([0, 0], stop_reason=StopReason.CONTEXT)
    both = algorithm(dropTruncated=True, dynamicSampling=True)
    assert credit.no_signal(equal, both) == credit.CUT_OFF
    assert credit.no_signal([*cut, *group([1.0, 0.0])], both) == ""
    assert credit.no_signal(group([1, 1]), both) == credit.EQUAL
    assert credit.no_signal(group([1, 1]), algorithm(dropZeroAdvantage=True)) == credit.NONE_LEFT


def test_turns_are_runs_of_generated_tokens() -> None:
    two = group(
        [1.0],
        mask=b"\0\1\0\1",
        spans=[
            VersionSpan(version=1, step=0, start=1, end=2),
            VersionSpan(version=1, step=0, start=3, end=4),
        ],
    )
    assert credit._scored(two[0]).num_turns == 2
    assert credit._scored(group([1.0])[0]).num_turns == 1
