"""Group sequence policy optimization (arXiv 2507.18071), sections 4.1 and 4.3, per token.

    s_i = exp(mean over t of log(π / old))        s_it = sg(s_i) π / sg(π)
    l = -min(s_it A, clip(s_it, 1 - clipLow, 1 + clipHigh) A)

s_it has the value of s_i and the gradient s_i ∇log π of its own token (sg: no gradient), so that
advantages may differ between tokens. Averaged over each sequence, then over sequences.
"""

from __future__ import annotations

import torch

from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.ppo_clip import clipped_surrogate
from rl_trainer.algorithm.losses.ratios import means, ratio
from rl_trainer.algorithm.losses.records import LossInputs, LossOutputs


def loss(inputs: LossInputs, section: Loss) -> LossOutputs:
    """Loss of each token; see the module for the formula."""
    with torch.no_grad():
        of_sequence = ratio(means(inputs.logprobs - inputs.old_logprobs, inputs.sequences))
    ones = torch.exp(inputs.logprobs - inputs.logprobs.detach())
    return clipped_surrogate(of_sequence * ones, inputs.advantages, section)
