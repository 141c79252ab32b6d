"""Pass@k by leave-one-out (arXiv 2503.19595), divided by the deviation of the group's rewards.

    A_i = PassAtK's A_i / (std(R) + 1e-6)

With k = K it is what verl calls ``grpo_passk``, by its default. The deviation is the sample's, as
of GRPO: groups whose rewards differ little then count as much as others.
"""

from __future__ import annotations

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators import pass_at_k
from rl_trainer.algorithm.estimators.grpo import EPSILON, deviation
from rl_trainer.algorithm.estimators.records import Group


def advantages(group: Group, section: Estimator) -> list[float]:
    """Advantages of a group's K ≥ k ≥ 2 members, each ≥ 0; all zero when the rewards are equal."""
    scale = deviation([episode.total for episode in group]) + EPSILON
    return [advantage / scale for advantage in pass_at_k.advantages(group, section)]
