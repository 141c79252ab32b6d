"""Attention within the sequences of a packed row; no mask of all pairs of tokens is ever made.

Registered with transformers (``ALL_ATTENTION_FUNCTIONS``), so that unmodified models call it. Where
a model would have a mask made, it gets ``Segments`` instead: the lengths of the sequences, and the
sliding window of the layers that have one.

| device | numbers | what computes it |
|---|---|---|
| GPU | bfloat16, float16 | ``torch.nn.attention.varlen``: all sequences in one kernel |
| GPU | float32 | one ``scaled_dot_product_attention`` for each sequence |
| CPU | any | the same |

Nothing of it has been tried on a GPU yet.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface

from rl_contracts.errors import RLError

NAME = "within_sequences"
"""Of this attention, for transformers' ``attn_implementation``."""
MOST_BLOCK = 512
"""Queries of a sliding window that share a band of keys."""
MOST_VARLEN_WIDTH = 256
"""Of a head, in flash attention's kernels."""


class UnsupportedAttentionError(RLError):
    """The model's attention is not the causal one, with or without a window, that is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Which tokens of a row of T see each other: those before them in their own sequence."""

    lengths: tuple[int, ...]
    """Tokens of each sequence, ≥ 1, in the order of the row; their sum is T."""
    window: int | None = None
    """Each token sees so many at most, itself included; None: all before it."""
    problem: str = ""
    """What the model's mask has that this cannot stand for: a layer that uses it is refused."""

    def offsets(self, device: torch.device) -> Tensor:
        """Where sequences begin, and T: int32 ``[S + 1]``."""
        ends = torch.tensor([0, *self.lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        return ends.to(device)


_packed: ContextVar[tuple[int, ...] | None] = ContextVar("packed", default=None)


@contextlib.contextmanager
def packed(lengths: Sequence[int]) -> Iterator[None]:
    """A pass over one row of sequences of these lengths.

    Without it each row of a pass is one sequence.
    """
    token = _packed.set(tuple(lengths))
    try:
        yield
    finally:
        _packed.reset(token)


def register() -> None:
    """Make ``NAME`` known to transformers."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, segments)


def segments(
    *,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., Tensor],
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    **_: Any,
) -> Segments:
    """What stands for a mask of ``[q_length, kv_length]``; called as transformers' mask functions.

    Args:
        q_length: T.
        kv_length: T, as there is no cache.
        mask_function: whether a query sees a key, by (row, head, query, key), int64 tensors. The
            result is compared with it at the borders of sequences and windows.
        attention_mask: of padding; None, as there is none.
        local_size: the window.
    """
    made = Segments(lengths=_packed.get() or (q_length,), window=local_size)
    assert sum(made.lengths) == q_length, f"{made.lengths} are not {q_length} tokens"
    if attention_mask is not None or q_length != kv_length:
        return replace(made, problem="its attention is given padding or a cache")
    if local_size == 0 or not _agree(made, mask_function):
        # Models make masks that none of their layers uses: only a layer's use is an error.
        return replace(
            made,
            problem="its attention is not causal within packed sequences, with or without a "
            "sliding window",
        )
    return made


def _agree(made: Segments, mask_function: Callable[..., Tensor]) -> bool:
    """Ask for pairs around each border, where another mask would differ."""
    ends = torch.tensor(made.lengths).cumsum(0)
    starts = ends - torch.tensor(made.lengths)
    window = made.window or int(ends[-1])
    queries = torch.stack([ends - 1, (starts + ends) // 2, starts])
    pairs = [
        (query, key.clamp(0, int(ends[-1]) - 1))
        for query in queries
        for key in (starts - 1, starts, query - window, query - window + 1, query, query + 1)
    ]
    query, key = (torch.cat(each) for each in zip(*pairs, strict=True))
    sequence = torch.repeat_interleave(torch.arange(len(ends)), torch.tensor(made.lengths))
    seen = (sequence[query] == sequence[key]) & (key <= query) & (query - key < window)
    zero = torch.zeros_like(query)
    asked = mask_function(zero, zero, query, key)
    return torch.equal(asked.expand_as(seen).cpu(), seen)


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Segments | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention of a layer, differentiable; called as transformers' attention functions.

    Args:
        module: the layer.
        query: ``[B, H, T, D]``.
        key: ``[B, K, T, D]``; H is a multiple of K.
        value: ``[B, K, T, V]``; V is at most D.
        attention_mask: what ``segments`` has made.
        dropout: of attention weights.
        scaling: of products of queries and keys; None: 1/sqrt(D).
        options: other things that models ask for.

    Returns:
        ``[B, T, H, V]``.

    Raises:
        UnsupportedAttentionError: an option is not computed here, or the model made its own mask.
    """
    for name in ("softcap", "s_aux", "position_bias"):
        if options.get(name) is not None:
            raise UnsupportedAttentionError(f"its attention has {name}, which is not computed")
    if not isinstance(attention_mask, Segments):
        raise UnsupportedAttentionError("its attention has a mask of its own")
    if attention_mask.problem:
        raise UnsupportedAttentionError(attention_mask.problem)
    width, wanted = query.shape[-1], value.shape[-1]
    # Kernels that hold no scores of all pairs want heads of one width.
    value = functional.pad(value, (0, width - wanted))
    compute = _varlen if _has_varlen(query) else _by_sequence
    out = compute(query, key, value, attention_mask, dropout=dropout, scaling=scaling)
    return out[..., :wanted].contiguous(), None


def _compute_dtype(tensor: Tensor) -> torch.dtype:
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else tensor.dtype


def _has_varlen(query: Tensor) -> bool:
    half = _compute_dtype(query) in (torch.bfloat16, torch.float16)
    return query.is_cuda and half and query.shape[-1] <= MOST_VARLEN_WIDTH


def _varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    made: Segments,
    *,
    dropout: float,
    scaling: float | None,
) -> Tensor:
    """All sequences in one kernel, ``[1, T, H, D]``."""
    if dropout:
        raise UnsupportedAttentionError("its attention has dropout, which no GPU kernel computes")
    dtype, offsets, longest = _compute_dtype(query), made.offsets(query.device), max(made.lengths)
    queries, keys, values = (each[0].transpose(0, 1).to(dtype) for each in (query, key, value))
    out = varlen_attn(
        queries,
        keys,
        values,
        offsets,
        offsets,
        longest,
        longest,
        scale=scaling,
        window_size=(-1 if made.window is None else made.window - 1, 0),
        enable_gqa=key.shape[1] != query.shape[1],
    )
    assert isinstance(out, Tensor), "no statistics are asked for"
    return out[None]


def _by_sequence(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    made: Segments,
    *,
    dropout: float,
    scaling: float | None,
) -> Tensor:
    """One attention for each sequence, ``[B, T, H, D]``."""
    if query.is_cuda:  # its kernels that hold no scores of all pairs have no groups in float32
        groups = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    lengths = list(made.lengths)
    # ``split`` and ``cat`` undo each other in the backward pass; slices would add up whole rows.
    parts = zip(*(torch.split(each, lengths, dim=2) for each in (query, key, value)), strict=True)
    dense = functools.partial(
        functional.scaled_dot_product_attention,
        dropout_p=dropout,
        scale=scaling,
        enable_gqa=key.shape[1] != query.shape[1],
    )
    outs = [
        dense(*part, is_causal=True)
        if made.window is None or part[0].shape[2] <= made.window
        else _windowed(*part, window=made.window, dense=dense)
        for part in parts
    ]
    return torch.cat([out.transpose(1, 2) for out in outs], dim=1)


def _windowed(
    query: Tensor, key: Tensor, value: Tensor, *, window: int, dense: Callable[..., Tensor]
) -> Tensor:
    """Of one sequence that is longer than the window.

    The first ``window`` queries see all before them. The others go in blocks, each with the keys
    that any of its queries sees, under a mask of ``[block, block + window - 1]`` for all blocks.
    """
    length, block = query.shape[2], min(window, MOST_BLOCK)
    band = _band(window, block, _compute_dtype(query), query.device)
    blocks, rest = divmod(length - window, block)
    first, middle, last = torch.split(query, [window, blocks * block, rest], dim=2)
    outs = [dense(first, key[:, :, :window], value[:, :, :window], is_causal=True)]
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
        out = dense(wide, *seen, attn_mask=band)
        rows = out.reshape(query.shape[0], blocks, *out.shape[1:])
        outs.append(rows.transpose(1, 2).flatten(2, 3))
    if rest:
        from_key = length - rest - window + 1
        outs.append(
            dense(
                last,
                key[:, :, from_key:],
                value[:, :, from_key:],
                attn_mask=band[:rest, : rest + window - 1],
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
