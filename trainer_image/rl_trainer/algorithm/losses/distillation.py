"""On-policy distillation (GKD, arXiv 2306.13649; MiniLLM, arXiv 2306.08543): no policy loss at all.

    l = Σ_v π(v) (log π(v) - log teacher(v))

at each token that the student sampled. It is what ``kl`` with estimator ``Full`` adds to a loss,
the teacher in the reference's place and β = 1; this is the loss that it is added to.
"""

from __future__ import annotations

import torch

from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses.records import LossInputs, LossOutputs


def loss(inputs: LossInputs, section: Loss) -> LossOutputs:
    """Zero for each token."""
    return LossOutputs(
        losses=torch.zeros_like(inputs.advantages),
        clipped=torch.zeros_like(inputs.advantages, dtype=torch.bool),
    )
