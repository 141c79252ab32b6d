"""Soft adaptive policy optimization (SAPO, arXiv 2511.20347), equations 5 and 6, per token.

    r = π / old        l = -(4 / τ) σ(τ (r - 1)) A

τ = ``tauPositive`` where A > 0, else ``tauNegative``. The gradient is that of -r A times
4 σ (1 - σ): 1 at r = 1 and the less the farther r is off, either way; no token is cut off.
Averaged over each sequence, then over sequences.
"""

from __future__ import annotations

import torch

from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.ratios import ratio
from rl_trainer.algorithm.losses.records import LossInputs, LossOutputs


def loss(inputs: LossInputs, section: Loss) -> LossOutputs:
    """Loss of each token; see the module for the formula."""
    positive, negative = section.temperatures
    # Of two plain numbers torch.where would make float32, whatever the inputs are.
    tau = torch.full_like(inputs.advantages, negative)
    tau.masked_fill_(inputs.advantages > 0, positive)
    gates = torch.sigmoid(tau * (ratio(inputs.logprobs - inputs.old_logprobs) - 1)) * (4 / tau)
    return LossOutputs(
        losses=-gates * inputs.advantages,
        clipped=torch.zeros_like(inputs.advantages, dtype=torch.bool),
    )
