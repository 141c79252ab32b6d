"""Advantage estimators by the name that ``spec.algorithm.estimator.kind`` gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rl_trainer.estimators import grpo

Estimator = Callable[[Sequence[float]], list[float]]
"""Rewards of one group's members → their advantages, in the same order."""

ESTIMATORS: dict[str, Estimator] = {
    "GRPO": grpo.advantages,
}
