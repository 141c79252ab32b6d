"""Causal attention over a paged cache, for several sequences in a call.

SGLang's ``torch_native`` calls ``scaled_dot_product_attention`` once per sequence and layer. Here
slots, mask and rows, which are the same in every layer, are computed once per forward. A layer then
takes a gather of keys, a gather of values and a call for each batch of sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from rl_engine_cpu.batches import batches


@dataclass(frozen=True, slots=True)
class Call:
    """The sequences of a call, padded to the longest.

    Attributes:
        sequences: their number.
        slots: cache slots of the keys, int, (sequences * keys,), sequence after sequence.
        mask: added to the scores: 0 or -inf, float, (sequences, 1, queries, keys).
        rows: rows of the queries, int, (sequences * queries,), sequence after sequence; a shorter
            sequence repeats its last query. None where each sequence has a single query, in order.
    """

    sequences: int
    slots: torch.Tensor
    mask: torch.Tensor
    rows: torch.Tensor | None


def plan(
    *,
    table: torch.Tensor,
    requests: torch.Tensor,
    queries: Sequence[int],
    keys: Sequence[int],
    dtype: torch.dtype,
) -> list[Call] | None:
    """Plan the calls of a forward; the plan is the same for every layer.

    Args:
        table: cache slot of each token, int, (requests, tokens).
        requests: row of each sequence in the table, int, (sequences,).
        queries: number of queries of each sequence, which are its last tokens.
        keys: number of tokens of each sequence.
        dtype: of the queries.

    Returns:
        The calls, or None where a sequence is too long for a mask.
    """
    divided = batches(queries, keys)
    if divided is None:
        return None
    lengths = torch.tensor([queries, keys])
    first = lengths[0].cumsum(0) - lengths[0]
    in_order = len(divided) == 1 and max(queries) == 1
    calls = []
    for members in divided:
        chosen = torch.tensor(members)
        visible, rows = _visible(*lengths[:, chosen].unbind())
        slots = table[:, : visible.shape[-1]].index_select(0, requests.index_select(0, chosen))
        # Padding repeats a sequence's own first slot, so that stale values of other sequences are
        # never read.
        slots = torch.where(visible[:, -1], slots, slots[:, :1])
        mask = torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, float("-inf"))
        calls.append(
            Call(
                sequences=len(members),
                slots=slots.reshape(-1),
                mask=mask.unsqueeze(1),
                rows=None if in_order else (first[chosen, None] + rows).reshape(-1),
            )
        )
    return calls


def _visible(queries: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether a query sees a key, and the index of each row's query in its sequence.

    A sequence with fewer queries than the longest repeats its last query.

    Args:
        queries: number of queries of each sequence, int, (sequences,).
        keys: number of keys of each sequence, int, (sequences,).

    Returns:
        bool, (sequences, queries, keys), and int, (sequences, queries).
    """
    rows = torch.arange(int(queries.max())).minimum(queries[:, None] - 1)
    position = (keys - queries)[:, None] + rows
    return torch.arange(int(keys.max())) <= position[:, :, None], rows


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    calls: Sequence[Call],
    scale: float,
) -> torch.Tensor:
    """Attention of a layer.

    Args:
        query: (tokens, heads, size).
        keys: the layer's cache, (slots, key-value heads, size); ``heads`` is a multiple of the
            key-value heads.
        values: the layer's cache, with the shape of the keys.
        calls: the plan of this forward.
        scale: factor of the scores.

    Returns:
        The outputs, (tokens, heads, size).
    """
    if calls[0].rows is None:
        return _call(query, keys, values, call=calls[0], scale=scale).view_as(query)
    output = torch.empty_like(query)
    for call in calls:
        assert call.rows is not None
        rows = _call(query.index_select(0, call.rows), keys, values, call=call, scale=scale)
        # A repeated row is written twice, with the same numbers.
        output.index_copy_(0, call.rows, rows)
    return output


def _call(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    call: Call,
    scale: float,
) -> torch.Tensor:
    """Attention of a call: query rows to output rows, both (rows, heads, size)."""
    _, heads, size = query.shape
    output = scaled_dot_product_attention(
        query.view(call.sequences, -1, heads, size).transpose(1, 2),
        _gathered(keys, call),
        _gathered(values, call),
        attn_mask=call.mask,
        scale=scale,
        enable_gqa=heads != keys.shape[1],
    )
    return output.transpose(1, 2).reshape(-1, heads, size)


def _gathered(cache: torch.Tensor, call: Call) -> torch.Tensor:
    """The cache entries of a call's slots, (sequences, heads, keys, size)."""
    entries = cache.index_select(0, call.slots)
    return entries.view(call.sequences, -1, *cache.shape[1:]).transpose(1, 2)
