"""Policy losses by the name that ``spec.algorithm.loss.kind`` gives them."""

from __future__ import annotations

from rl_trainer.algorithm.losses import (
    ce_gppo,
    cispo,
    dapo,
    decoupled_ppo,
    dppo_tv,
    gmpo,
    gspo,
    maxent,
    minirl,
    ppo_clip,
    sapo,
)
from rl_trainer.algorithm.losses.records import LossFunction

LOSSES: dict[str, LossFunction] = {
    "PPOClip": ppo_clip.loss,
    "DAPO": dapo.loss,
    "GSPO": gspo.loss,
    "CISPO": cispo.loss,
    "CEGPPO": ce_gppo.loss,
    "MiniRL": minirl.loss,
    "DecoupledPPO": decoupled_ppo.loss,
    "DPPOTV": dppo_tv.loss,
    "SAPO": sapo.loss,
    "GMPO": gmpo.loss,
    "MaxEnt": maxent.loss,
}
