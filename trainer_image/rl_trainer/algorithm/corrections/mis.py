"""Masked importance sampling of sequences (TRL's ``sequence_mask``; verl's rollout correction).

    w_i = Π_t p / μ  (level Sequence)  or  (Π_t p / μ)^(1/T_i)  (Geometric)

kept where low ≤ w_i ≤ cap, else 0, at every token of the sequence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.correction import Correction
from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.corrections.icepop import within
from rl_trainer.algorithm.losses.ratios import means, ratio, sums
from rl_trainer.algorithm.losses.records import LossInputs


@torch.no_grad()
def weights(inputs: LossInputs, section: Correction, loss: Loss) -> Tensor:
    """Factor on each token's loss; see the module for the formula."""
    log_ratios = inputs.proximal_logprobs - inputs.sampler_logprobs
    return within(ratio(joined(log_ratios, inputs.sequences, section)), section)


def joined(log_ratios: Tensor, sequences: Tensor, section: Correction) -> Tensor:
    """Log-ratio of each token's sequence, at every token: ``[N]`` → ``[N]``."""
    return (means if section.level == "Geometric" else sums)(log_ratios, sequences)
