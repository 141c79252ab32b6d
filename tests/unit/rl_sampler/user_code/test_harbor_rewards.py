"""What tests of a Harbor task write, and the reward that it is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_sampler.user_code.harbor_rewards import NoRewardError, Rewards, rewards_of


@pytest.mark.parametrize(
    ("written", "text", "rewards"),
    [
        (None, "1\n", Rewards(1.0)),
        (None, " 0.25 ", Rewards(0.25)),
        ("0.5", None, Rewards(0.5)),
        ('{"reward": 1, "style": 7}', None, Rewards(1.0, {"style": 7.0})),
        ('{"passed": 0.5}', None, Rewards(0.5)),
        ('{"reward": 0}', "1", Rewards(0.0)),
    ],
)
def test_rewards(written: str | None, text: str | None, rewards: Rewards) -> None:
    assert rewards_of(written, text) == rewards


@pytest.mark.parametrize(
    ("written", "text", "problem"),
    [
        (None, None, "neither reward.json nor reward.txt"),
        (None, "", "reward.txt holds no number"),
        (None, "nan", "rewards are in"),
        (None, "2", "rewards are in"),
        ("", "1", "reward.json holds no JSON"),
        ("{}", "1", "none is called reward"),
        ('{"a": 1, "b": 1}', None, "none is called reward"),
        ('{"reward": true}', None, "is no number"),
        ('{"reward": "1"}', None, "is no number"),
        ("[1]", None, "is no number"),
        ("1e999", None, "is inf"),
        ('{"reward": 1, "style": NaN}', None, "style in reward.json is nan"),
        ('{"reward": 1, "style": 1' + "0" * 400 + "}", None, "style in reward.json is inf"),
    ],
)
def test_no_reward(written: str | None, text: str | None, problem: str) -> None:
    with pytest.raises(NoRewardError, match=problem):
        rewards_of(written, text)


@given(st.text(max_size=20) | st.none(), st.text(max_size=20) | st.none())
def test_nothing_but_a_number_in_range_is_a_reward(written: str | None, text: str | None) -> None:
    try:
        reward = rewards_of(written, text).reward
    except NoRewardError:
        return
    assert 0 <= reward <= 1
    assert math.isfinite(reward)
