"""Sinks of attention: a learned score of each head that takes a share of every token's softmax.

With scores s_j of the keys that a query sees and the head's sink z, the weight of key i is
``exp(s_i) / (exp(z) + sum_j exp(s_j))`` (gpt-oss model card, arXiv 2508.10925, section 2.2; after
arXiv 2309.17453). Two forms that need no kernel of their own:

- ``Sink``: a further key in front of all others, whose product with every query is z and whose
  value is zero. For kernels that take any mask.
- ``varlen``: the kernel computes the attention without the sink, and the log-sum-exp l of each
  query's scores; its result is multiplied by ``sigmoid(l - z)``. For kernels whose windows would
  hide that key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.varlen import AuxRequest, varlen_attn

MULTIPLE = 8
"""Kernels of GPUs want heads whose width is divisible by it."""
Dense = Callable[..., Tensor]
"""Called as ``scaled_dot_product_attention``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """The key that stands for the sinks, and heads that are as wide as it."""

    key: Tensor
    """``[B, K, 1, W]``."""
    query: Tensor
    """``[B, H, T, W]``: queries, and in the added numbers which head of its group it is."""
    keys: Tensor
    """``[B, K, T, W]``: zero in the added numbers."""
    values: Tensor
    """``[B, K, T, W]``."""

    def causal(self, query: Tensor, key: Tensor, value: Tensor, *, dense: Dense) -> Tensor:
        """Causal attention ``[B, H, L, W]`` of queries and keys that begin together."""
        # The first row is a query of the sink to itself, so that the diagonal stays one.
        out = dense(functional.pad(query, (0, 0, 1, 0)), *self._behind(key, value), is_causal=True)
        return out[:, :, 1:]

    def masked(
        self, query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor, dense: Dense
    ) -> Tensor:
        """Attention ``[B, H, L, W]`` under an additive mask ``[L, keys]``."""
        return dense(query, *self._behind(key, value), attn_mask=functional.pad(mask, (1, 0)))

    def _behind(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys behind the sink's, and their values behind zeros."""
        rows = key.shape[0] // self.key.shape[0]
        sink = self.key.repeat_interleave(rows, dim=0).to(key.dtype)
        return torch.cat([sink, key], dim=2), functional.pad(value, (0, 0, 1, 0))


def sink_of(sinks: Tensor, query: Tensor, key: Tensor, value: Tensor, *, scaling: float) -> Sink:
    """Widen heads by the numbers that make a key's product with each query the head's sink.

    Args:
        sinks: of the heads ``[H]``.
        query: ``[B, H, T, D]``.
        key: ``[B, K, T, D]``; H is a multiple of K.
        value: ``[B, K, T, D]``.
        scaling: of products of queries and keys.
    """
    rows, heads, _, width = query.shape
    groups = heads // key.shape[1]
    added = -(-groups // MULTIPLE) * MULTIPLE
    which = torch.eye(groups, added, dtype=query.dtype, device=query.device)
    which = which.repeat(heads // groups, 1)[None, :, None]
    scores = (sinks / scaling).reshape(1, -1, 1, groups).expand(rows, -1, -1, -1)
    return Sink(
        key=functional.pad(scores, (width, added - groups)),
        query=torch.cat([query, which.expand(*query.shape[:3], -1)], dim=-1),
        keys=functional.pad(key, (0, added)),
        values=functional.pad(value, (0, added)),
    )


def kernel_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The backward pass of ``varlen_attn``, which has no public name; arguments as there."""
    given: tuple[Tensor, Tensor, Tensor] = torch.ops.torch_attn._varlen_attn_backward(*arguments)
    return given


class _Varlen(torch.autograd.Function):
    """``varlen_attn`` with sinks.

    The kernel's backward pass takes an output O and log-sum-exps l, and derives the weights
    ``exp(s - l)`` and each query's ``dO · O`` from them. Given those that include the sink, its
    gradients are those of attention with the sink.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        sinks: Tensor,
        offsets: Tensor,
        longest: int,
        scaling: float,
        window: tuple[int, int],
    ) -> Tensor:
        out, sums = varlen_attn(
            query,
            key,
            value,
            offsets,
            offsets,
            longest,
            longest,
            return_aux=AuxRequest(lse=True),
            scale=scaling,
            window_size=window,
            enable_gqa=key.shape[1] != query.shape[1],
        )
        share = torch.sigmoid(sums - sinks.float()[:, None])  # [H, T]
        out = (out * share.T[..., None]).to(out.dtype)
        sums = torch.logaddexp(sums, sinks.float()[:, None])
        ctx.save_for_backward(query, key, value, sinks, out, sums, offsets)
        ctx.rest = longest, scaling, window
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, sinks, out, sums, offsets = ctx.saved_tensors
        longest, scaling, window = ctx.rest
        gradient = gradients[0].contiguous()
        given = kernel_backward(
            gradient,
            query,
            key,
            value,
            out,
            sums,
            offsets,
            offsets,
            longest,
            longest,
            window == (-1, 0),
            torch.zeros(2, dtype=torch.uint64, device=query.device),
            scaling,
            list(window),
        )
        products = (gradient.float() * out.float()).sum(-1).T  # [H, T]
        shares = torch.exp(sinks.float()[:, None] - sums)
        of_sinks = -(shares * products).sum(-1).to(sinks.dtype)
        return (*given, of_sinks, None, None, None, None)


def varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    *,
    offsets: Tensor,
    longest: int,
    scaling: float | None,
    window: tuple[int, int],
) -> Tensor:
    """Attention within sequences with sinks, ``[T, H, D]``, differentiable; on GPUs.

    Args:
        query: ``[T, H, D]``, in bfloat16 or float16.
        key: ``[T, K, D]``; H is a multiple of K.
        value: ``[T, K, D]``.
        sinks: of the heads ``[H]``.
        offsets: where each sequence begins and the last ends, int32.
        longest: tokens of the longest sequence.
        scaling: of products of queries and keys; None: 1/sqrt(D).
        window: tokens that a token sees before and behind it, as ``varlen_attn`` takes them.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    arguments = (query, key, value, sinks, offsets, longest, scale, window)
    out: Tensor = _Varlen.apply(*arguments)
    return out
