"""Importance cap with out-of-date decay, as AgentRL has it (OpenBMB/AgentCPM, ``arl.py``).

    r = π / μ      w = 0 where A > 0 and r > 1 + clipHigh c d, or A < 0 and r < 1 - clipLow c d

else 1, with c = ``cap`` (at least 1) and d = e^(-decay · age), or d = 1/c under ``strictInBound``.
Bounds get narrower with the age of the token's policy; age is counted in training steps.
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
    ratios = ratio(inputs.logprobs - inputs.sampler_logprobs)
    low, high = loss.bounds
    width = _width(inputs.ages, section)
    above = (inputs.advantages > 0) & (ratios > 1 + (high - 1) * width)
    below = (inputs.advantages < 0) & (ratios < 1 - (1 - low) * width)
    return (~(above | below)).to(ratios.dtype)


def _width(ages: Tensor, section: Correction) -> Tensor:
    if section.strict_in_bound:
        return torch.ones_like(ages)
    return section.range[1] * torch.exp(-(section.decay or 0.0) * ages)
