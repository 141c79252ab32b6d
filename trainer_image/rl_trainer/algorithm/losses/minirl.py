"""MiniRL (arXiv 2512.01374), per token.

    r = π / old        l = -sg(r m) A log π

m is 0 where A > 0 and r > 1 + clipHigh, or A < 0 and r < 1 - clipLow, else 1; sg: no gradient.
Summed over each sequence, then averaged over sequences.
"""

from __future__ import annotations

import torch

from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.ppo_clip import outside
from rl_trainer.algorithm.losses.ratios import ratio
from rl_trainer.algorithm.losses.records import LossInputs, LossOutputs


def loss(inputs: LossInputs, section: Loss) -> LossOutputs:
    """Loss of each token; see the module for the formula."""
    with torch.no_grad():
        ratios = ratio(inputs.logprobs - inputs.old_logprobs)
        held = outside(ratios, inputs.advantages, section)
        weights = torch.where(held, torch.zeros_like(ratios), ratios)
    return LossOutputs(losses=-weights * inputs.advantages * inputs.logprobs, clipped=held)
