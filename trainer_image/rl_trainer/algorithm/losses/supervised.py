"""Negative log-likelihood of demonstrations (``algorithm.objective: SFT``), per token.

l = -A log π        A = 1
"""

from __future__ import annotations

import torch

from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.records import LossInputs, LossOutputs


def loss(inputs: LossInputs, section: Loss) -> LossOutputs:
    """Loss of each token; nothing is clipped."""
    return LossOutputs(
        losses=-inputs.advantages * inputs.logprobs,
        clipped=torch.zeros_like(inputs.advantages, dtype=torch.bool),
    )
