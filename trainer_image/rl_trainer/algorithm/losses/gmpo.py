"""Geometric-mean policy optimization (GMPO, arXiv 2507.20673), equation 4, per token.

    c_it = log r, held on the side that A pushes to:
           at most log(1 + clipHigh) where A > 0, at least log(1 - clipLow) where A < 0
    s_i = exp(mean over t of c_it)        s_it = sg(s_i) exp(c_it - sg(c_it))        l = -s_it A

with r = π / old. s_it has the value of s_i and, as the paper's sequence loss has, the gradient
s_i ∇log π of its own token, none where that one is held (sg: no gradient), so that advantages may
differ between tokens. Averaged over each sequence, then over sequences.
"""

from __future__ import annotations

import torch

from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.ppo_clip import outside
from rl_trainer.algorithm.losses.ratios import means, ratio
from rl_trainer.algorithm.losses.records import LossInputs, LossOutputs


def loss(inputs: LossInputs, section: Loss) -> LossOutputs:
    """Loss of each token; see the module for the formula."""
    changes = inputs.logprobs - inputs.old_logprobs
    with torch.no_grad():
        ratios = ratio(changes)
        held = outside(ratios, inputs.advantages, section)
        bounds = ratios.clamp(*section.bounds).log()
    inside = torch.where(held, bounds, changes)
    of_sequence = ratio(means(inside.detach(), inputs.sequences))
    own = torch.exp(inside - inside.detach())
    return LossOutputs(losses=-of_sequence * own * inputs.advantages, clipped=held)
