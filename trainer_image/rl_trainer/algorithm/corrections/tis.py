"""Truncated importance sampling of the engine's policy (as slime, verl and TRL have it).

    w = clip(p / μ, low, cap)

p is the trainer's policy before the step, μ the one that sampled, as the engine reported it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.correction import Correction
from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.ratios import ratio
from rl_trainer.algorithm.losses.records import LossInputs


@torch.no_grad()
def weights(inputs: LossInputs, section: Correction, loss: Loss) -> Tensor:
    """Factor on each token's loss; see the module for the formula."""
    return ratio(inputs.proximal_logprobs - inputs.sampler_logprobs).clamp(*section.range)
