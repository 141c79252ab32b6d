"""log_softmax at one index of each row, with one array of the logits' size in the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def chosen_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """``logits.log_softmax(-1)`` at the targets.

    Args:
        logits: float32 ``[N, V]``; the backward pass overwrites them, so that nothing else may
            read them after this. Reading them backward again raises RuntimeError.
        targets: int64 ``[N]``.

    Returns:
        float32 ``[N]``, differentiable once: ∂/∂logits = onehot(target) - softmax(logits).
    """
    logprobs: Tensor = _Chosen.apply(logits, targets)
    return logprobs


class _Chosen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        totals = logits.logsumexp(-1)
        ctx.save_for_backward(logits, targets, totals)
        return logits.gather(-1, targets[:, None])[:, 0] - totals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        logits, targets, totals = ctx.saved_tensors
        spread = logits.sub_(totals[:, None]).exp_().mul_(-gradient[:, None])
        spread.scatter_add_(-1, targets[:, None], gradient[:, None])
        return spread, None
