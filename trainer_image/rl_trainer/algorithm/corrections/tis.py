"""Truncated importance sampling of the engine's policy (as slime, verl and TRL have it).

    w = clip(p / μ, low, cap)                     of each token
    w_i = clip(Π_t p / μ, low, cap)               with ``level: Sequence``, at every token
    w_i = clip((Π_t p / μ)^(1/T_i), low, cap)     with ``level: Geometric``

Of a token the weight corrects the state's next action alone; of a sequence it corrects what led
there too, with more variance (verl's ``rollout_is: sequence``, its
docs/algo/rollout_corr_math.md; TRL's ``sequence_truncate``).

p is the trainer's policy before the step, μ the one that sampled, as the engine reported it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.correction import Correction
from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.corrections.mis import joined
from rl_trainer.algorithm.losses.ratios import ratio
from rl_trainer.algorithm.losses.records import LossInputs


@torch.no_grad()
def weights(inputs: LossInputs, section: Correction, loss: Loss) -> Tensor:
    """Factor on each token's loss; see the module for the formula."""
    log_ratios = inputs.proximal_logprobs - inputs.sampler_logprobs
    if section.level is not None:
        log_ratios = joined(log_ratios, inputs.sequences, section)
    return ratio(log_ratios).clamp(*section.range)
