from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_contracts.spec.learning import Estimator
from rl_trainer.estimators import ESTIMATORS, grpo

REWARDS = st.lists(st.floats(-100, 100), min_size=2, max_size=32)


def test_every_estimator_of_the_manifest_is_there() -> None:
    kinds = Estimator.model_json_schema()["properties"]["kind"]
    assert set(ESTIMATORS) == set(kinds.get("enum", [kinds.get("const")]))


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        # mean 1/4, squares 9/16 + 3/16 = 3/4, sample variance 1/4, standard deviation 1/2.
        ([1.0, 0.0, 0.0, 0.0], [1.5, -0.5, -0.5, -0.5]),
        # mean 1/2, sample variance 1/2.
        ([1.0, 0.0], [math.sqrt(0.5), -math.sqrt(0.5)]),
        ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0]),
        ([-0.5, -0.5], [0.0, 0.0]),
    ],
)
def test_advantages_by_hand(rewards: list[float], expected: list[float]) -> None:
    assert grpo.advantages(rewards) == pytest.approx(expected, rel=1e-5)


@given(REWARDS)
def test_they_agree_with_torch_and_sum_to_zero(rewards: list[float]) -> None:
    values = torch.tensor(rewards, dtype=torch.float64)
    reference = (values - values.mean()) / (values.std() + grpo.EPSILON)
    found = grpo.advantages(rewards)
    assert found == pytest.approx(reference.tolist(), abs=1e-6)
    assert math.fsum(found) == pytest.approx(0, abs=1e-6)


@given(REWARDS, st.floats(-10, 10))
def test_a_bonus_for_all_changes_nothing(rewards: list[float], bonus: float) -> None:
    shifted = grpo.advantages([reward + bonus for reward in rewards])
    assert shifted == pytest.approx(grpo.advantages(rewards), abs=1e-4)
