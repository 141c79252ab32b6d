"""Off-policy sequence mask, DeepSeek-V3.2 (arXiv 2512.02556).

    w_i = 0 where A < 0 and mean over t of log(μ / π) > threshold, else 1

A bad sequence that the policy has left far behind would push on what it no longer does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.correction import Correction
from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.ratios import means
from rl_trainer.algorithm.losses.records import LossInputs


@torch.no_grad()
def weights(inputs: LossInputs, section: Correction, loss: Loss) -> Tensor:
    """Factor on each token's loss; see the module for the formula."""
    assert section.threshold is not None, "the API server asks for it"
    left = means(inputs.sampler_logprobs - inputs.logprobs, inputs.sequences)
    masked = (inputs.advantages < 0) & (left > section.threshold)
    return (~masked).to(left.dtype)
