"""Value loss with clipping, as PPO's first implementation has it (arXiv 1707.06347), per token.

    l = ½ max((V - R)², (clip(V, V_old - ε, V_old + ε) - R)²)

Without ε it is ½ (V - R)².
"""

from __future__ import annotations

import torch
from torch import Tensor


def loss(values: Tensor, returns: Tensor, *, old: Tensor | None, clip: float | None) -> Tensor:
    """Loss of each token, float32 ``[N]``.

    Args:
        values: V, with gradient ``[N]``.
        returns: R ``[N]``.
        old: V before the step ``[N]``; needed with ``clip``.
        clip: ε > 0; None does not clip.
    """
    free = (values - returns).square()
    if clip is None:
        return free / 2
    assert old is not None
    held = (old + (values - old).clamp(-clip, clip) - returns).square()
    return torch.maximum(free, held) / 2
