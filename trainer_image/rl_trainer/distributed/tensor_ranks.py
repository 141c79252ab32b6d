"""Ranks that compute each layer together, as autograd sees them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup


class TensorRanks:
    """The ranks of the axis ``tp``, or of another whose parts of a sum make a whole.

    The two functions of Megatron-LM (arXiv 1909.08053, section 3): f is ``shared``, g is ``total``.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def total(self, values: Tensor) -> Tensor:
        """See ``algorithm.vocabulary.Ranks``."""
        summed: Tensor = _Total.apply(values, self._group)
        return summed

    def most(self, values: Tensor) -> Tensor:
        """See ``algorithm.vocabulary.Ranks``."""
        largest = values.detach().clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=self._group)
        return largest

    def shared(self, values: Tensor) -> Tensor:
        """See ``algorithm.vocabulary.Ranks``."""
        same: Tensor = _Shared.apply(values, self._group)
        return same


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, values: Tensor, group: Group) -> Tensor:
        summed = values.clone()
        dist.all_reduce(summed, group=group)
        return summed

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        summed = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed, group=ctx.group)
        return summed, None
