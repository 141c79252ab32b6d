"""REINFORCE++ with baseline (arXiv 2501.03262): the group's mean off, then normalised.

    A_i = (R_i - mean_g(R) - m) / sqrt(v + 1e-8)

m and v are mean and sample variance of R_i - mean_g(R) over all tokens of the step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators import dr_grpo
from rl_trainer.algorithm.estimators.records import Advantage, Group, State
from rl_trainer.algorithm.estimators.reinforce_plus_plus import whitened


def advantages(groups: Sequence[Group], section: Estimator, state: State) -> list[list[Advantage]]:
    """One advantage for each member; all zero when the rewards are equal within every group."""
    return whitened(
        [
            [
                torch.full((episode.num_tokens,), centred, dtype=torch.float64)
                for episode, centred in zip(group, dr_grpo.advantages(group, section), strict=True)
            ]
            for group in groups
        ]
    )
