"""REINFORCE leave-one-out (arXiv 2402.14740).

    A_i = R_i - mean of the others' R = K / (K - 1) (R_i - mean(R))

The baseline does not depend on the member itself, so that the gradient is unbiased. This is also
AgentRL's leave-one-out advantage without standard deviation.
"""

from __future__ import annotations

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators.records import Group, weighted_mean


def advantages(group: Group, section: Estimator) -> list[float]:
    """Advantages of a group's K ≥ 2 members; all zero when the rewards are equal."""
    assert len(group) >= 2, "leaving one out needs another"
    rewards = [episode.total for episode in group]
    mean = weighted_mean(rewards)
    return [len(rewards) / (len(rewards) - 1) * (reward - mean) for reward in rewards]
