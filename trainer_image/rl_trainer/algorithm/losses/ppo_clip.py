"""Clipped surrogate loss, PPO (arXiv 1707.06347), equation 7, per token.

    r = π / old        l = -min(r A, clip(r, 1 - clipLow, 1 + clipHigh) A)

With ``dualClip`` c (arXiv 1912.09729) the loss of a token with A < 0 is at most -c A.
``old`` is the policy that sampled the token: one ratio covers staleness and the difference between
trainer and engine. Under a correction that weighs by p / μ it is p, the weights before the step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.ratios import ratio
from rl_trainer.algorithm.losses.records import LossInputs, LossOutputs


def loss(inputs: LossInputs, section: Loss) -> LossOutputs:
    """Loss of each token; see the module for the formula."""
    return clipped_surrogate(
        ratio(inputs.logprobs - inputs.old_logprobs), inputs.advantages, section
    )


def clipped_surrogate(ratios: Tensor, advantages: Tensor, section: Loss) -> LossOutputs:
    """The formula over given ratios, float32 ``[N]``, which may carry a gradient."""
    low, high = section.bounds
    losses = -torch.minimum(ratios * advantages, ratios.clamp(low, high) * advantages)
    with torch.no_grad():
        held = outside(ratios, advantages, section)
    return dual_clipped(losses, held, advantages, section)


def dual_clipped(losses: Tensor, held: Tensor, advantages: Tensor, section: Loss) -> LossOutputs:
    """The losses, which ``dualClip`` bounds where it is set; ``held``, bool ``[N]``, grows."""
    if section.dual_clip is None:
        return LossOutputs(losses=losses, clipped=held)
    bound = -section.dual_clip * advantages
    with torch.no_grad():
        held = held | ((advantages < 0) & (losses > bound))
    losses = torch.where(advantages < 0, torch.minimum(losses, bound), losses)
    return LossOutputs(losses=losses, clipped=held)


def outside(ratios: Tensor, advantages: Tensor, section: Loss) -> Tensor:
    """Where the policy has already gone as far as the clip lets it; bool ``[N]``."""
    low, high = section.bounds
    return ((advantages > 0) & (ratios > high)) | ((advantages < 0) & (ratios < low))
