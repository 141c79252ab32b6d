"""Group mean and the step's deviation: GRPO with batch-wide standard deviation (arXiv 2508.08221).

    A_i = (R_i - mean_g(R)) / (std(R of all groups) + 1e-6)

"Lite PPO" of that paper; ``scale_rewards="batch"`` in TRL. GRPO's own deviation gives a
group that is nearly solved as much weight as any other; here its rare failures weigh no more than
their rewards. The deviation is the sample's (divided by N - 1) over the rewards of the whole step.
"""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators import dr_grpo
from rl_trainer.algorithm.estimators.grpo import EPSILON, deviation
from rl_trainer.algorithm.estimators.records import Advantage, Group, State


def advantages(groups: Sequence[Group], section: Estimator, state: State) -> list[list[Advantage]]:
    """One advantage for each member; all zero when the rewards are equal within every group."""
    scale = deviation([episode.total for group in groups for episode in group]) + EPSILON
    return [[centred / scale for centred in dr_grpo.advantages(group, section)] for group in groups]
