"""MaxEnt-GRPO (liv-daliberti/maxent-grpo): likelihood weighted by listwise targets, per token.

    l = -A log π  [+ clipCoefficient · PPO's clipped loss with advantage A - 1]

A = K w is what ``estimator.kind: MaxEnt`` gives: averaged over each sequence and then over
sequences this is the mean over groups of Σ_i -w_i log π(y_i) / T_i, and A - 1 is K (w - 1/K).
"""

from __future__ import annotations

import torch

from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses import ppo_clip
from rl_trainer.algorithm.losses.ratios import ratio
from rl_trainer.algorithm.losses.records import LossInputs, LossOutputs


def loss(inputs: LossInputs, section: Loss) -> LossOutputs:
    """Loss of each token; see the module for the formula."""
    likelihood = -inputs.advantages * inputs.logprobs
    if section.clip_coefficient is None:
        return LossOutputs(
            losses=likelihood, clipped=torch.zeros_like(inputs.advantages, dtype=torch.bool)
        )
    clipped = ppo_clip.clipped_surrogate(
        ratio(inputs.logprobs - inputs.old_logprobs), inputs.advantages - 1, section
    )
    return LossOutputs(
        losses=likelihood + section.clip_coefficient * clipped.losses, clipped=clipped.clipped
    )
