from __future__ import annotations

import itertools
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_trainer.algorithm.pass_rates import pass_rates


@pytest.mark.parametrize(
    ("rewards", "rates"),
    [
        ([[1.0], [0.0]], {"1": 0.5}),
        ([[1.0, 0.0], [0.0, 0.0]], {"1": 0.25, "2": 0.5}),
        # One of three: 1 - C(2,1)/C(3,1), 1 - C(2,2)/C(3,2), 1.
        ([[0.0, 0.9, 0.5]], {"1": 1 / 3, "2": 2 / 3, "3": 1.0}),
    ],
)
def test_by_hand(rewards: list[list[float]], rates: dict[str, float]) -> None:
    assert pass_rates(rewards) == pytest.approx(rates)


@given(
    st.integers(1, 6).flatmap(
        lambda tries: st.lists(
            st.lists(st.sampled_from([0.0, 0.5, 0.6, 1.0]), min_size=tries, max_size=tries),
            min_size=1,
            max_size=4,
        )
    )
)
def test_pass_at_k_is_the_share_of_successful_subsets(rewards: list[list[float]]) -> None:
    for k, rate in pass_rates(rewards).items():
        expected = fmean(
            fmean(
                float(any(reward > 0.5 for reward in chosen))
                for chosen in itertools.combinations(prompt, int(k))
            )
            for prompt in rewards
        )
        assert rate == pytest.approx(expected)
