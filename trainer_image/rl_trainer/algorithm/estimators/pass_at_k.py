"""Pass@k by leave-one-out (arXiv 2503.19595), averaged over all subsets of size k.

    A_i = mean over subsets S of k members with i in S of  max(S) - max(S without i)

For k = K only the best member gets one: what it beats the second by. Nothing is left out of the
sum: with the others sorted by reward, the j-th (from 0) is the best of a subset of k - 1 of them
in C(j, k - 2) of C(K - 1, k - 1) cases.
"""

from __future__ import annotations

import math

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators.records import Group


def advantages(group: Group, section: Estimator) -> list[float]:
    """Advantages of a group's K ≥ k ≥ 2 members, each ≥ 0; all zero when the rewards are equal."""
    assert section.k is not None, "the API server asks for it"
    assert 2 <= section.k <= len(group), "the best of k needs k members"
    rewards = [episode.total for episode in group]
    return [
        _gain(reward, sorted(rewards[:index] + rewards[index + 1 :]), k=section.k)
        for index, reward in enumerate(rewards)
    ]


def _gain(reward: float, others: list[float], *, k: int) -> float:
    cases = math.comb(len(others), k - 1)
    return math.fsum(
        math.comb(rank, k - 2) / cases * max(0.0, reward - other)
        for rank, other in enumerate(others)
    )
