"""What some estimators need to know of a rollout before its step, as the models compute it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_trainer.algorithm.kl.controller import Controls
from rl_trainer.algorithm.samples import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Tensors over a rollout's T generated tokens, in order; float64 ``[T]`` each."""

    divergences: Tensor | None = None
    """KL of the policy from the reference, in nats, for KL in the reward."""
    reference: Tensor | None = None
    """The reference's log-probabilities."""
    values: Tensor | None = None
    """The critic's estimate of the reward to come before each token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What advantages depend on besides rewards."""

    controls: Controls = field(default_factory=Controls)
    assessments: Mapping[str, Assessment] = field(default_factory=dict)
    """By rollout id; empty where the algorithm needs none."""


def needed(algorithm: Algorithm) -> bool:
    """Whether the advantages depend on an ``Assessment``."""
    in_reward = algorithm.divergence is not None and algorithm.divergence.placement == "Reward"
    in_weights = algorithm.divergence is not None and algorithm.estimator.kind == "MaxEnt"
    return in_reward or in_weights or algorithm.critic is not None


def by_rollout(samples: Sequence[Sample], values: Sequence[Tensor]) -> dict[str, Tensor]:
    """Join what was computed for the sequences of each rollout, as float64 on the CPU."""
    parts: dict[str, list[Tensor]] = {}
    for sample, value in zip(samples, values, strict=True):
        parts.setdefault(sample.rollout, []).append(value.detach().double().cpu())
    return {rollout: torch.cat(pieces) for rollout, pieces in parts.items()}
