"""Attention within the sequences of a packed row; no mask of all pairs of tokens is ever made.

Registered with transformers (``ALL_ATTENTION_FUNCTIONS``), so that unmodified models call it. Where
a model would have a mask made, it gets ``Segments`` instead: the lengths of the sequences, and the
sliding window of the layers that have one.

| device | numbers | what computes it |
|---|---|---|
| GPU | bfloat16, float16 | ``torch.nn.attention.varlen``: all sequences in one kernel |
| GPU | float32 | one ``scaled_dot_product_attention`` for each sequence |
| CPU | any | the same |
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface

from rl_contracts.errors import RLError
from rl_trainer.distributed.context_ranks import ContextRanks
from rl_trainer.model.attention import kernels

NAME = "within_sequences"
"""Of this attention, for transformers' ``attn_implementation``."""


class UnsupportedAttentionError(RLError):
    """The model's attention is not the causal one, with or without a window, that is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Which tokens of a row of T see each other: those before them in their own sequence."""

    lengths: tuple[int, ...]
    """Tokens of each sequence, ≥ 1, in the order of the row; their sum is T."""
    window: int | None = None
    """Each token sees so many at most, itself included; None: all before it."""
    ranks: ContextRanks | None = None
    """Those that share the row with this one, each with T / R tokens; None: it is whole here."""
    problem: str = ""
    """What the model's mask has that this cannot stand for: a layer that uses it is refused."""


_packed: ContextVar[tuple[tuple[int, ...], ContextRanks | None] | None] = ContextVar(
    "packed", default=None
)


@contextlib.contextmanager
def packed(lengths: Sequence[int], ranks: ContextRanks | None = None) -> Iterator[None]:
    """A pass over one row of sequences of these lengths, or over this rank's tokens of it.

    Without it each row of a pass is one sequence.
    """
    token = _packed.set((tuple(lengths), ranks))
    try:
        yield
    finally:
        _packed.reset(token)


def register() -> None:
    """Make ``NAME`` known to transformers."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, segments)


def ordinary(module: Any) -> str:
    """Transformers' own attention for a model, to compare with; sinks have no other form there."""
    return "sdpa" if module._supports_sdpa else "eager"


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
        q_length: T, or T / R.
        kv_length: the same, as there is no cache.
        mask_function: whether a query sees a key, by (row, head, query, key), int64 tensors. The
            result is compared with it at the borders of sequences and windows.
        attention_mask: of padding; None, as there is none.
        local_size: the window.
    """
    lengths, ranks = _packed.get() or ((q_length,), None)
    own = lengths if ranks is None else ranks.own_lengths(lengths)
    assert sum(own) == q_length, f"{own} are not {q_length} tokens"
    made = Segments(lengths=lengths, window=local_size, ranks=ranks)
    if attention_mask is not None or q_length != kv_length:
        return replace(made, problem="its attention is given padding or a cache")
    if local_size == 0 or not _agree(own, local_size, mask_function):
        # Models make masks that none of their layers uses: only a layer's use is an error.
        return replace(
            made,
            problem="its attention is not causal within packed sequences, with or without a "
            "sliding window",
        )
    return made


def _agree(
    lengths: Sequence[int], local_size: int | None, mask_function: Callable[..., Tensor]
) -> bool:
    """Ask for pairs around each border, where another mask would differ.

    Either the mask keeps sequences apart, or, where a model does not pass on positions (gpt-oss),
    it is that of a row that is one sequence. Both are computed within sequences.
    """
    ends = torch.tensor(lengths).cumsum(0)
    starts = ends - torch.tensor(lengths)
    window = local_size or int(ends[-1])
    queries = torch.stack([ends - 1, (starts + ends) // 2, starts])
    pairs = [
        (query, key.clamp(0, int(ends[-1]) - 1))
        for query in queries
        for key in (starts - 1, starts, query - window, query - window + 1, query, query + 1)
    ]
    query, key = (torch.cat(each) for each in zip(*pairs, strict=True))
    sequence = torch.repeat_interleave(torch.arange(len(ends)), torch.tensor(lengths))
    row = (key <= query) & (query - key < window)
    apart = row & (sequence[query] == sequence[key])
    zero = torch.zeros_like(query)
    asked = mask_function(zero, zero, query, key).expand_as(row).cpu()
    return torch.equal(asked, apart) or torch.equal(asked, row)


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
        options: other things that models ask for; ``s_aux`` are the heads' sinks ``[H]``.

    Returns:
        ``[B, T, H, V]``.

    Raises:
        UnsupportedAttentionError: an option is not computed here, or the model made its own mask.
    """
    for name in ("softcap", "position_bias"):
        if options.get(name) is not None:
            raise UnsupportedAttentionError(f"its attention has {name}, which is not computed")
    if not isinstance(attention_mask, Segments):
        raise UnsupportedAttentionError("its attention has a mask of its own")
    if attention_mask.problem:
        raise UnsupportedAttentionError(attention_mask.problem)
    width, wanted = query.shape[-1], value.shape[-1]
    # Kernels that hold no scores of all pairs want heads of one width.
    value = functional.pad(value, (0, width - wanted))
    ranks, sinks = attention_mask.ranks, options.get("s_aux")
    if ranks is not None:
        query, key, value = (ranks.all_tokens(each) for each in (query, key, value))
        sinks = None if sinks is None else ranks.own_heads(sinks)
    out = kernels.compute(
        query,
        key,
        value,
        lengths=attention_mask.lengths,
        window=attention_mask.window,
        dropout=dropout,
        scaling=scaling,
        sinks=sinks,
    )
    if ranks is not None:
        out = ranks.all_heads(out)
    return out[..., :wanted].contiguous(), None
