"""The factor of losses under ``precision: FP16``, with the defaults of ``torch.amp.GradScaler``.

Gradients below 6e-8 are 0 in float16, and above 65,504 infinite. So losses are multiplied by a
scale, and gradients are divided by it again in float32. Where one of them is not finite, the update
is skipped and the scale halved; after 2,000 updates in a row it is doubled (arXiv 1710.03740,
section 3.2). Pure.

GradScaler itself takes parameters of one mesh, and a trainer's may lie on several. Nor is its check
needed: the norm of the gradient is over all ranks, and not finite on each of them where one of
their gradients is not, so that all of them skip the same updates. The scale is a function of the
updates, and part of every checkpoint: replaying a step skips the same ones.
"""

from __future__ import annotations

from rl_trainer.algorithm.kl.controller import Controls

LEAST = 1.0
"""At this scale a gradient that is not finite is no matter of the scale: the attempt ends."""
GROWTH = 2.0
INTERVAL = 2000
"""Updates in a row with finite gradients before the scale grows."""


def after(controls: Controls, *, finite: bool) -> Controls:
    """The scale of the next update, from whether this one's gradient was finite."""
    if not finite:
        scale = max(LEAST, controls.loss_scale / GROWTH)
        return controls.model_copy(update={"loss_scale": scale, "finite_updates": 0})
    count = controls.finite_updates + 1
    if count < INTERVAL:
        return controls.model_copy(update={"finite_updates": count})
    return controls.model_copy(
        update={"loss_scale": controls.loss_scale * GROWTH, "finite_updates": 0}
    )
