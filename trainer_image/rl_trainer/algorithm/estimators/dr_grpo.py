"""Dr. GRPO (arXiv 2503.20783), section 3.2: no division by the standard deviation.

    A_i = R_i - mean(R)

Dividing would weigh prompts that are nearly solved, or nearly hopeless, more than others. The paper
also divides each sequence by a constant: ``loss.aggregation: ConstantLength``.
"""

from __future__ import annotations

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators.records import Group, weighted_mean


def advantages(group: Group, section: Estimator) -> list[float]:
    """Advantages of a group's K ≥ 2 members; all zero when the rewards are equal."""
    assert len(group) >= 2, "Dr. GRPO compares the members of a group"
    rewards = [episode.total for episode in group]
    mean = weighted_mean(rewards)
    return [reward - mean for reward in rewards]
