"""How attention within the sequences of a row is computed, by device and numbers.

Kernels that hold no scores of all pairs of tokens alone are called: memory grows with the tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.varlen import varlen_attn

from rl_trainer.model.attention import sinks as attention_sinks
from rl_trainer.model.attention.sinks import Sink

MOST_BLOCK = 512
"""Queries of a sliding window that share a band of keys."""
MOST_VARLEN_WIDTH = 256
"""Of a head, in flash attention's kernels."""


def compute(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    lengths: Sequence[int],
    window: int | None,
    dropout: float,
    scaling: float | None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Causal attention within each sequence, ``[B, T, H, D]``, differentiable.

    Args:
        query: ``[B, H, T, D]``.
        key: ``[B, K, T, D]``; H is a multiple of K.
        value: ``[B, K, T, D]``.
        lengths: of the sequences; their sum is T.
        window: tokens that each token sees at most, itself included; None: all before it.
        dropout: of attention weights.
        scaling: of products of queries and keys; None: 1/sqrt(D).
        sinks: of the heads ``[H]``; None: they have none.
    """
    # No GPU kernel for several sequences has dropout.
    kernel = varlen if not dropout and _has_varlen(query) else by_sequence
    return kernel(
        query,
        key,
        value,
        lengths=lengths,
        window=window,
        dropout=dropout,
        scaling=scaling,
        sinks=sinks,
    )


def _compute_dtype(tensor: Tensor) -> torch.dtype:
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else tensor.dtype


def _has_varlen(query: Tensor) -> bool:
    half = _compute_dtype(query) in (torch.bfloat16, torch.float16)
    return query.is_cuda and half and query.shape[-1] <= MOST_VARLEN_WIDTH


def varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    lengths: Sequence[int],
    window: int | None,
    dropout: float,
    scaling: float | None,
    sinks: Tensor | None = None,
) -> Tensor:
    """All sequences in one kernel, ``[1, T, H, D]``."""
    assert not dropout, "the kernel has none"
    ends = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    dtype, offsets, longest = _compute_dtype(query), ends.to(query.device), max(lengths)
    queries, keys, values = (each[0].transpose(0, 1).to(dtype) for each in (query, key, value))
    seen = (-1 if window is None else window - 1, 0)
    if sinks is not None:
        return attention_sinks.varlen(
            queries,
            keys,
            values,
            sinks,
            offsets=offsets,
            longest=longest,
            scaling=scaling,
            window=seen,
        )[None]
    out = varlen_attn(
        queries,
        keys,
        values,
        offsets,
        offsets,
        longest,
        longest,
        scale=scaling,
        window_size=seen,
        enable_gqa=key.shape[1] != query.shape[1],
    )
    assert isinstance(out, Tensor), "no statistics are asked for"
    return out[None]


def by_sequence(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    lengths: Sequence[int],
    window: int | None,
    dropout: float,
    scaling: float | None,
    sinks: Tensor | None = None,
) -> Tensor:
    """One attention for each sequence, ``[B, T, H, D]``."""
    if query.is_cuda:  # its kernels that hold no scores of all pairs have no groups in float32
        groups = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    sink, width = None, query.shape[-1]
    if sinks is not None:
        scaling = width**-0.5 if scaling is None else scaling
        sink = attention_sinks.sink_of(sinks, query, key, value, scaling=scaling)
        query, key, value = sink.query, sink.keys, sink.values
    # ``split`` and ``cat`` undo each other in the backward pass; slices would add up whole rows.
    parts = zip(
        *(torch.split(each, list(lengths), dim=2) for each in (query, key, value)), strict=True
    )
    dense = functools.partial(
        functional.scaled_dot_product_attention,
        dropout_p=dropout,
        scale=scaling,
        enable_gqa=key.shape[1] != query.shape[1],
    )
    kernels = _Kernels(dense, sink)
    outs = [
        kernels.causal(*part)
        if window is None or part[0].shape[2] <= window
        else _windowed(*part, window=window, kernels=kernels)
        for part in parts
    ]
    return torch.cat([out.transpose(1, 2) for out in outs], dim=1)[..., :width]


class _Kernels:
    """One attention, with sinks or without."""

    def __init__(self, dense: Callable[..., Tensor], sink: Sink | None) -> None:
        self._dense, self._sink = dense, sink

    def causal(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self._sink is not None:
            return self._sink.causal(query, key, value, dense=self._dense)
        return self._dense(query, key, value, is_causal=True)

    def masked(self, query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor) -> Tensor:
        if self._sink is not None:
            return self._sink.masked(query, key, value, mask=mask, dense=self._dense)
        return self._dense(query, key, value, attn_mask=mask)


def _windowed(
    query: Tensor, key: Tensor, value: Tensor, *, window: int, kernels: _Kernels
) -> Tensor:
    """Of one sequence that is longer than the window.

    The first ``window`` queries see all before them. The others go in blocks, each with the keys
    that any of its queries sees, under a mask of ``[block, block + window - 1]`` for all blocks.
    """
    length, block = query.shape[2], min(window, MOST_BLOCK)
    band = _band(window, block, _compute_dtype(query), query.device)
    blocks, rest = divmod(length - window, block)
    first, middle, last = torch.split(query, [window, blocks * block, rest], dim=2)
    outs = [kernels.causal(first, key[:, :, :window], value[:, :, :window])]
    if blocks:
        # [B, H, blocks × block, D] to [B × blocks, H, block, D]; of the keys no copy is made.
        shape = (*query.shape[:2], blocks, block, query.shape[3])
        wide = middle.reshape(shape).transpose(1, 2).flatten(0, 1)
        seen = (
            each[:, :, 1 : window + blocks * block]
            .unfold(2, block + window - 1, block)
            .permute(0, 2, 1, 4, 3)
            .flatten(0, 1)
            for each in (key, value)
        )
        out = kernels.masked(wide, *seen, mask=band)
        rows = out.reshape(query.shape[0], blocks, *out.shape[1:])
        outs.append(rows.transpose(1, 2).flatten(2, 3))
    if rest:
        from_key = length - rest - window + 1
        outs.append(
            kernels.masked(
                last,
                key[:, :, from_key:],
                value[:, :, from_key:],
                mask=band[:rest, : rest + window - 1],
            )
        )
    return torch.cat(outs, dim=2)


@functools.lru_cache(maxsize=4)
def _band(window: int, block: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """0 where query i of a block sees key j, -inf elsewhere: i ≤ j < i + window."""
    distance = torch.arange(block + window - 1)[None] - torch.arange(block)[:, None]
    hidden = (distance < 0) | (distance >= window)
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
    return mask.to(device)
