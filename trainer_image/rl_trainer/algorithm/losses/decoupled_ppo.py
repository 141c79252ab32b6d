"""Decoupled PPO (arXiv 2110.00641; for stale data in AReaL, arXiv 2505.24298), per token.

    w = sg(p / μ)        r = π / p        l = -w min(r A, clip(r, 1 - clipLow, 1 + clipHigh) A)

μ sampled the token; p, the proximal policy, is the trainer's weights before the step: the clip
limits how far the step moves, however stale its data are. With ``importanceCap`` a token whose w is
larger is left out.
"""

from __future__ import annotations

import torch

from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.ppo_clip import clipped_surrogate
from rl_trainer.algorithm.losses.ratios import ratio
from rl_trainer.algorithm.losses.records import LossInputs, LossOutputs


def loss(inputs: LossInputs, section: Loss) -> LossOutputs:
    """Loss of each token; see the module for the formula."""
    outputs = clipped_surrogate(
        ratio(inputs.logprobs - inputs.proximal_logprobs), inputs.advantages, section
    )
    with torch.no_grad():
        weights = ratio(inputs.proximal_logprobs - inputs.sampler_logprobs)
        held = outputs.clipped
        if section.importance_cap is not None:
            over = weights > section.importance_cap
            weights, held = torch.where(over, torch.zeros_like(weights), weights), held | over
    return LossOutputs(losses=weights * outputs.losses, clipped=held)
