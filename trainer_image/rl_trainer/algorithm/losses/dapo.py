"""Clip-higher, DAPO (arXiv 2503.14476), section 3.1: PPO's loss with a wider upper bound.

    l = -min(r A, clip(r, 1 - clipLow, 1 + clipHigh) A)     clipLow 0.2, clipHigh 0.28

averaged over the tokens of the whole step. Its dynamic sampling and its overlong penalty are
``filter`` and ``shaping``: they act on rewards, not on this loss.
"""

from __future__ import annotations

from rl_contracts.spec.algorithm.loss import Loss
from rl_trainer.algorithm.losses import ppo_clip
from rl_trainer.algorithm.losses.records import LossInputs, LossOutputs


def loss(inputs: LossInputs, section: Loss) -> LossOutputs:
    """Loss of each token; the bounds of the section are DAPO's own where unset."""
    return ppo_clip.loss(inputs, section)
