"""ReMax (arXiv 2310.10505): what a greedy rollout of the same prompt got is the baseline.

    A_i = R_i - R_greedy

The baseline does not depend on what was sampled, so that the gradient is unbiased even for a group
of one. It is the reward alone, without KL: a greedy rollout is asked for nothing but its score.
"""

from __future__ import annotations

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators.records import Group


def advantages(group: Group, section: Estimator) -> list[float]:
    """Advantages of a group's K ≥ 1 members; zero for those that did as well as the greedy one."""
    return [episode.total - _baseline(episode.baseline) for episode in group]


def _baseline(reward: float | None) -> float:
    assert reward is not None, "the group has a greedy member"
    return reward
