"""Divergence PPO with binary total variation (DPPO, arXiv 2602.04879), per token.

    r = π / old        l = -sg(min(r, 20) m) A log π

m is 0 where A > 0 and π - old > clipHigh, or A < 0 and π - old < -clipLow, else 1; sg: no gradient.
|π - old| is the policies' total variation once all other tokens are taken for one: a lower bound of
the whole one. Unlike a clip of the ratio it leaves rare tokens room, and stops common ones before
they have moved far. The cap of 20 is that of the authors' code.
"""

from __future__ import annotations

import torch

from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.ratios import ratio
from rl_trainer.algorithm.losses.records import LossInputs, LossOutputs

MAX_WEIGHT = 20.0
"""Of a token that was all but impossible when it was sampled."""


def loss(inputs: LossInputs, section: Loss) -> LossOutputs:
    """Loss of each token; see the module for the formula."""
    low, high = section.clips
    with torch.no_grad():
        moved = inputs.logprobs.exp() - inputs.old_logprobs.exp()
        advantages = inputs.advantages
        held = ((advantages > 0) & (moved > high)) | ((advantages < 0) & (moved < -low))
        weights = ratio(inputs.logprobs - inputs.old_logprobs).clamp(max=MAX_WEIGHT)
        weights = torch.where(held, torch.zeros_like(weights), weights)
    return LossOutputs(losses=-weights * advantages * inputs.logprobs, clipped=held)
