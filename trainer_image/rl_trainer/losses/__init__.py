"""Policy losses by the name that ``spec.algorithm.loss.kind`` gives them."""

from __future__ import annotations

from rl_trainer.losses import ppo_clip
from rl_trainer.losses.records import LossFunction

LOSSES: dict[str, LossFunction] = {
    "PPOClip": ppo_clip.loss,
}
