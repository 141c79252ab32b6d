"""Ranks that share each row of tokens, as autograd sees them (context parallel).

Each rank runs the layers over its own tokens, a contiguous part of the row. Attention alone needs
all of them: before it, ranks exchange tokens for heads, and after it heads for tokens (DeepSpeed
Ulysses, arXiv 2309.14509), so that each computes whole sequences for a part of the heads. Losses
see the numbers of all tokens (``together``), whose gradients each rank takes for its own.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single
from torch.nn import functional

Group = dist.ProcessGroup


class ContextRanks:
    """The ranks of the axis ``cp``."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def part(self, row: Tensor) -> Tensor:
        """This rank's tokens of a row ``[1, T]``, zeros behind its end included: ``[1, t]``."""
        return functional.pad(row, (0, -row.shape[1] % self.size)).chunk(self.size, dim=1)[
            self.rank
        ]

    def span(self, tokens: int) -> tuple[int, int]:
        """First token of this rank in a row of so many, and the one behind its last."""
        each = -(-tokens // self.size)
        return self.rank * each, (self.rank + 1) * each

    def lengths(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        """Of the sequences of a row; each zero behind its end is one of its own."""
        return (*lengths, *[1] * (-sum(lengths) % self.size))

    def own_lengths(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        """Of the parts of these sequences that lie among this rank's tokens."""
        first, last = self.span(sum(lengths))
        start, cut = 0, []
        for length in lengths:
            cut.append(min(start + length, last) - max(start, first))
            start += length
        return tuple(length for length in cut if length > 0)

    def all_tokens(self, values: Tensor) -> Tensor:
        """All tokens of this rank's heads ``[1, H/R, T, D]``, of all heads ``[1, H, t, D]``.

        Fewer heads than ranks are repeated first, each as often as the ranks need it.
        """
        values = values.repeat_interleave(repeats(values.shape[1], self.size), dim=1)
        heads, tokens = values.shape[1] // self.size, values.shape[2]
        sent = values.reshape(self.size, heads, tokens, -1)
        came = self._exchanged(sent)
        return came.transpose(0, 1).reshape(1, heads, self.size * tokens, -1)

    def own_heads(self, values: Tensor) -> Tensor:
        """Those of this rank's heads ``[H/R]``, of a number of each head ``[H]``."""
        return values.chunk(self.size)[self.rank]

    def all_heads(self, values: Tensor) -> Tensor:
        """All heads of this rank's tokens ``[1, t, H, D]``, of its heads ``[1, T, H/R, D]``."""
        tokens, heads = values.shape[1] // self.size, values.shape[2]
        came = self._exchanged(values.reshape(self.size, tokens, heads, -1))
        return came.transpose(0, 1).reshape(1, tokens, self.size * heads, -1)

    def together(self, own: Tensor, *, first: int, count: int) -> Tensor:
        """Numbers of all ranks' tokens ``[count]``; own ones begin at ``first``.

        Every rank computes the same loss of them: the gradient of its own is that of its part.
        """
        whole: Tensor = _Together.apply(own, first, count, self._group)
        return whole

    def _exchanged(self, sent: Tensor) -> Tensor:
        came = all_to_all_single(sent.contiguous(), None, None, self._group)
        return came.reshape(sent.shape)


def repeats(heads: int, ranks: int) -> int:
    """How often each head is repeated, so that all ranks have equally many."""
    return math.lcm(heads, ranks) // heads


class _Together(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, first: int, count: int, group: Group) -> Tensor:
        ctx.place = slice(first, first + own.shape[0])
        whole = own.new_zeros(count)
        whole[ctx.place] = own
        dist.all_reduce(whole, group=group)  # sums of one number and zeros
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return gradient[ctx.place], None, None, None
