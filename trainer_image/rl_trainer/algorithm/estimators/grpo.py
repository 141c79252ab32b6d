"""Group relative advantages, DeepSeekMath (arXiv 2402.03300), section 4.1.2.

    A_i = (R_i - mean(R)) / (std(R) + 1e-6)

with the *sample* standard deviation (divided by K - 1), as in verl and TRL; the paper does not say
which. The 1e-6 makes a group whose members all got the same reward worth nothing, instead of 0/0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators.records import Group, weighted_mean

EPSILON = 1e-6


def advantages(group: Group, section: Estimator) -> list[float]:
    """Advantages of a group's K ≥ 2 members; all zero when the rewards are equal."""
    assert len(group) >= 2, "GRPO compares the members of a group"
    rewards = [episode.total for episode in group]
    mean, scale = weighted_mean(rewards), deviation(rewards) + EPSILON
    return [(reward - mean) / scale for reward in rewards]


def deviation(rewards: Sequence[float]) -> float:
    """Sample standard deviation ≥ 0; exactly 0 for equal rewards, and for a single one."""
    mean = weighted_mean(rewards)
    squares = math.fsum((reward - mean) ** 2 for reward in rewards)
    return math.sqrt(squares / max(1, len(rewards) - 1))
