"""Clipped surrogate loss, PPO (arXiv 1707.06347), equation 7, per token.

    r = π / μ        l = -min(r A, clip(r, 1 - clipLow, 1 + clipHigh) A)

μ is the policy that sampled the token, not the trainer's weights before the update: one ratio
covers staleness and the difference between trainer and engine.
"""

from __future__ import annotations

import torch

from rl_contracts.spec.learning import Loss
from rl_trainer.losses.records import LossInputs, LossOutputs

MAX_LOG_RATIO = 20.0
"""e^20 = 4.9e8: keeps the ratio finite where the policies have nothing in common."""


def loss(inputs: LossInputs, section: Loss) -> LossOutputs:
    """Loss of each token; see the module for the formula."""
    log_ratio = inputs.logprobs - inputs.sampler_logprobs
    ratio = torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    low, high = 1 - section.clip_low, 1 + section.clip_high
    free = ratio * inputs.advantages
    held = ratio.clamp(low, high) * inputs.advantages
    with torch.no_grad():
        above = (inputs.advantages > 0) & (ratio > high)
        below = (inputs.advantages < 0) & (ratio < low)
    return LossOutputs(losses=-torch.minimum(free, held), clipped=above | below)
