"""What changes by itself from step to step: the weight of the KL, and MaxEnt's temperature. Pure.

    β ← β (1 + clip(KL / target - 1, ±0.2) n / horizon)         arXiv 1909.08593, section 2.2
    log τ ← log τ + rate (H* - H̄),   H̄ ← 0.9 H̄ + 0.1 H         maxent-grpo

n is the number of rollouts of the step, H the mean entropy of the groups' weights. Both are
functions of what a step measured, so that replaying it gives the same values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from rl_contracts.documents.base import Record
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.kl import KLController

LARGEST_ERROR = 0.2
MEMORY = 0.9


class Controls(Record):
    """The values in force; a part of every checkpoint."""

    kl_coefficient: float = 0.0
    """β ≥ 0."""
    kl_adapted: bool | None = None
    """Whether β is an adaptive controller's; None in checkpoints of earlier releases, which do not
    say it."""
    tau: float = 1.0
    """τ > 0."""
    weight_entropy: float | None = None
    """Moving mean of the groups' weight entropy; None before the first step."""
    reward_baselines: dict[str, float] = Field(default_factory=dict)
    """RAE's baseline of each data source; those of the batch that was trained last."""
    loss_scale: float = 65536.0
    """Factor of losses under ``training.precision: FP16``, ≥ 1; see ``algorithm.loss_scale``."""
    finite_updates: int = 0
    """Updates in a row whose gradient was finite, since the scale has changed."""


def initial(algorithm: Algorithm) -> Controls:
    """The values at the start of a run."""
    beta = 0.0 if algorithm.divergence is None else algorithm.divergence.coefficient
    return Controls(kl_coefficient=beta, kl_adapted=False, tau=algorithm.estimator.weighting.tau)


def resumed(saved: Controls, algorithm: Algorithm) -> Controls:
    """The values with which a run goes on from a checkpoint, of whatever manifest that is.

    A value that this manifest fixes is the manifest's. One that changes by itself is the
    checkpoint's, if it changed by itself in the run that wrote it, too.
    """
    kept = ["loss_scale", "finite_updates"]  # without FP16 still as at the start
    # β is 0 in a run without KL, and no factor would ever raise it.
    adapted = saved.kl_adapted is not False and saved.kl_coefficient > 0
    if adapted and _adaptive(algorithm) is not None:
        kept += ["kl_coefficient", "kl_adapted"]
    # Only ``tuneTau`` keeps a mean of the entropy.
    if saved.weight_entropy is not None and algorithm.estimator.weighting.tune_tau is not None:
        kept += ["tau", "weight_entropy"]
    if algorithm.estimator.kind == "RAE":
        kept.append("reward_baselines")
    return initial(algorithm).model_copy(update={name: getattr(saved, name) for name in kept})


def advance(
    controls: Controls,
    algorithm: Algorithm,
    *,
    kl: float | None,
    rollouts: int,
    weight_entropy: float | None,
) -> Controls:
    """The values for the next step.

    Args:
        controls: the step's own.
        algorithm: the manifest's section.
        kl: mean divergence of the step's tokens; None where there is no reference.
        rollouts: that the step trained.
        weight_entropy: mean over its groups, in nats; None where weights are none.
    """
    tau, average = _temperature(controls, algorithm, weight_entropy)
    changes: dict[str, float | bool | None] = {"tau": tau, "weight_entropy": average}
    adaptive = _adaptive(algorithm)
    if adaptive is not None and kl is not None:
        assert adaptive.target is not None
        assert adaptive.horizon is not None
        error = min(max(kl / adaptive.target - 1, -LARGEST_ERROR), LARGEST_ERROR)
        # A factor of 0 or less would end the penalty: the API server refuses such a horizon.
        factor = max(0.0, 1 + error * rollouts / adaptive.horizon)
        changes |= {"kl_coefficient": controls.kl_coefficient * factor, "kl_adapted": True}
    return controls.model_copy(update=changes)


def mean_entropy(groups: Sequence[Sequence[float]]) -> float:
    """Mean over groups of the entropy of their members' weights, each at least 0, in nats."""
    return math.fsum(_entropy(group) for group in groups) / len(groups)


def _adaptive(algorithm: Algorithm) -> KLController | None:
    """The controller that changes β; None where β stays as it is."""
    controller = None if algorithm.divergence is None else algorithm.divergence.controller
    return controller if controller is not None and controller.kind == "Adaptive" else None


def _entropy(weights: Sequence[float]) -> float:
    total = math.fsum(weights)
    shares = [weight / total for weight in weights]
    return -math.fsum(share * math.log(share) for share in shares if share > 0)


def _temperature(
    controls: Controls, algorithm: Algorithm, entropy: float | None
) -> tuple[float, float | None]:
    options = algorithm.estimator.weighting.tune_tau
    if options is None or entropy is None:
        return controls.tau, controls.weight_entropy
    before = entropy if controls.weight_entropy is None else controls.weight_entropy
    average = MEMORY * before + (1 - MEMORY) * entropy
    moved = math.log(controls.tau) + options.learning_rate * (options.target_entropy - average)
    return min(max(math.exp(moved), options.minimum), options.maximum), average
