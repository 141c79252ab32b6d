"""IcePop, of Ring-1T (arXiv 2510.18855).

    w = p / μ where low ≤ p / μ ≤ cap, else 0

A token on which trainer and engine disagree too much, either way, teaches nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.correction import Correction
from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.ratios import ratio
from rl_trainer.algorithm.losses.records import LossInputs


@torch.no_grad()
def weights(inputs: LossInputs, section: Correction, loss: Loss) -> Tensor:
    """Factor on each token's loss; see the module for the formula."""
    return within(ratio(inputs.proximal_logprobs - inputs.sampler_logprobs), section)


def within(ratios: Tensor, section: Correction) -> Tensor:
    """Ratios inside the section's range; 0 outside, NaN stays NaN."""
    low, cap = section.range
    out = (ratios < low) | (ratios > cap)
    return torch.where(out, torch.zeros_like(ratios), ratios)
