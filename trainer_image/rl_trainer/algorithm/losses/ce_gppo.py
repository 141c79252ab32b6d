"""Clipping that keeps gradients, CE-GPPO (arXiv 2509.20712), equation 8, per token.

    r = π / old        l = -w A r / sg(r)

    w = gradientBelow (1 - clipLow)      if A < 0 and r < 1 - clipLow
        gradientAbove (1 + clipHigh)     if A > 0 and r > 1 + clipHigh
        sg(r)                            otherwise

sg: no gradient. A token beyond the clip has PPO's gradient at the clip's bound times a factor,
where PPO gives it none. The factors are the paper's β1 and β2; with both 0 the gradient is PPO's.
"""

from __future__ import annotations

import torch

from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.ppo_clip import dual_clipped, outside
from rl_trainer.algorithm.losses.ratios import ratio
from rl_trainer.algorithm.losses.records import LossInputs, LossOutputs


def loss(inputs: LossInputs, section: Loss) -> LossOutputs:
    """Loss of each token; see the module for the formula."""
    low, high = section.bounds
    below, above = section.kept_gradients
    ratios = ratio(inputs.logprobs - inputs.old_logprobs)
    with torch.no_grad():
        held = outside(ratios, inputs.advantages, section)
        # Of two plain numbers torch.where would make float32, whatever the inputs are.
        weights = torch.full_like(ratios, below * low)
        weights.masked_fill_(inputs.advantages > 0, above * high)
    # Not r / sg(r): its log-ratio is limited, and beyond the limit it has no gradient.
    unit = torch.exp(inputs.logprobs - inputs.logprobs.detach())
    losses = -torch.where(held, weights * unit, ratios) * inputs.advantages
    return dual_clipped(losses, held, inputs.advantages, section)
