"""Clipped importance weights, CISPO of MiniMax-M1 (arXiv 2506.13585), section 3.1, per token.

    r = π / old        l = -sg(clip(r, 1 - clipLow, 1 + clipHigh)) A log π

sg: no gradient through the weight. Every token keeps a gradient; the clip only bounds its size.
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
        weights = ratios.clamp(*section.bounds)
        held = outside(ratios, inputs.advantages, section)
    return LossOutputs(losses=-weights * inputs.advantages * inputs.logprobs, clipped=held)
