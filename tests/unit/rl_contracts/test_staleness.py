"""Staleness, by hand and against the definition of its bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.staleness import is_trainable, oldest_trainable_step, staleness


@pytest.mark.parametrize(
    ("oldest_step", "step", "expected"),
    [
        (0, 1, 0),  # the first update, tokens of the base policy
        (7, 8, 0),  # on-policy
        (5, 8, 2),
        (-1, 1, 1),  # no sampled token: older than the base policy
    ],
)
def test_staleness_counts_updates_between_token_and_training(
    oldest_step: int, step: int, expected: int
) -> None:
    assert staleness(oldest_step, step=step) == expected


@pytest.mark.parametrize(
    ("oldest_step", "max_staleness", "trainable"),
    [(7, 0, True), (6, 0, False), (5, 2, True), (4, 2, False)],
)
def test_rollouts_are_trainable_up_to_the_bound_itself(
    oldest_step: int, max_staleness: int, *, trainable: bool
) -> None:
    assert is_trainable(oldest_step, step=8, max_staleness=max_staleness) is trainable


@given(committed=st.integers(0, 100), oldest=st.integers(-1, 100), max_staleness=st.integers(0, 64))
def test_trainable_rollouts_are_exactly_those_from_the_oldest_trainable_step_on(
    committed: int, oldest: int, max_staleness: int
) -> None:
    """What samplers ask before they sample agrees with what the trainer asks when it trains."""
    next_step = committed + 1
    first = oldest_trainable_step(committed, max_staleness=max_staleness)

    assert is_trainable(oldest, step=next_step, max_staleness=max_staleness) is (oldest >= first)
