"""On-policy RL with optimal reward baseline (arXiv 2505.23585).

    A_i = R_i - Σ_j T_j R_j / Σ_j T_j

The baseline of least gradient variance, where the gradient's square grows with the length T.
"""

from __future__ import annotations

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators.records import Group, weighted_mean


def advantages(group: Group, section: Estimator) -> list[float]:
    """Advantages of a group's K ≥ 2 members; all zero when the rewards are equal."""
    assert len(group) >= 2, "OPO compares the members of a group"
    baseline = weighted_mean(
        [episode.total for episode in group], [episode.num_tokens for episode in group]
    )
    return [episode.total - baseline for episode in group]
