"""Maximum likelihood reinforcement learning, MaxRL (arXiv 2602.02710).

    A_i = (R_i - mean(R)) / mean(R)

For rewards of 0 and 1 its gradient is, without bias, that of the log-likelihood of a right answer
truncated at order K: log p = -Σ_k (1 - p)^k / k. A prompt of which few answers are right weighs
1/p. A group whose mean is not positive has no right answer to learn from: zero.
"""

from __future__ import annotations

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators.records import Group, weighted_mean


def advantages(group: Group, section: Estimator) -> list[float]:
    """Advantages of a group's K ≥ 2 members; all zero when rewards are equal, or their mean ≤ 0."""
    assert len(group) >= 2, "MaxRL compares the members of a group"
    rewards = [episode.total for episode in group]
    mean = weighted_mean(rewards)
    if mean <= 0:
        return [0.0] * len(group)
    return [(reward - mean) / mean for reward in rewards]
