"""Causal attention over a cache whose slots a table names, several sequences in one call.

SGLang's ``torch_native`` calls ``scaled_dot_product_attention`` once per sequence and layer. Here
what is the same in every layer (slots, mask, rows) is made once per forward, and a layer is one
gather of keys and of values and one call for all sequences of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from rl_engine_cpu.batches import batches


@dataclass(frozen=True, slots=True)
class Call:
    """Sequences that one call attends to, padded to the longest of them.

    Attributes:
        sequences: how many.
        slots: of the keys of all of them, one sequence after the other.
        mask: what is added to the scores, (sequences, 1, queries, keys).
        rows: where the queries lie, one sequence after the other; ``None``: one query each, in
            order. A sequence with fewer queries than the longest repeats its last one.
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
    """What is the same in every layer of one forward.

    Args:
        table: slot of each token, (requests, tokens).
        requests: row of each sequence in the table.
        queries: how many queries each sequence has: its last tokens.
        keys: how many tokens each sequence has.
        dtype: of the queries.

    Returns:
        The calls, or ``None`` where a sequence is too long for a mask.
    """
    divided = batches(queries, keys)
    if divided is None:
        return None
    lengths = torch.tensor([queries, keys])
    first = lengths[0].cumsum(0) - lengths[0]
    in_order = len(divided) == 1 and max(queries) == 1
    found = []
    for members in divided:
        chosen = torch.tensor(members)
        asked, there = lengths[:, chosen].unbind()
        seen, rows = _visible(asked, there)
        slots = table[:, : seen.shape[-1]].index_select(0, requests.index_select(0, chosen))
        # Padding repeats a sequence's own first slot: what another left behind is never read.
        slots = torch.where(seen[:, -1], slots, slots[:, :1])
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, float("-inf"))
        found.append(
            Call(
                sequences=len(members),
                slots=slots.reshape(-1),
                mask=mask.unsqueeze(1),
                rows=None if in_order else (first[chosen, None] + rows).reshape(-1),
            )
        )
    return found


def _visible(queries: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Which keys each query sees, and which of its sequence's queries each row is.

    A sequence with fewer queries than the longest repeats its last one.
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
    """Attention of one layer.

    Args:
        query: (tokens, heads, size).
        keys: the layer's cache, (slots, key-value heads, size); heads are a multiple of these.
        values: as the keys.
        calls: of this forward.
        scale: of the scores.

    Returns:
        (tokens, heads, size).
    """
    if calls[0].rows is None:
        return _call(query, keys, values, call=calls[0], scale=scale).view_as(query)
    output = torch.empty_like(query)
    for call in calls:
        assert call.rows is not None
        found = _call(query.index_select(0, call.rows), keys, values, call=call, scale=scale)
        # A row that stands twice is written twice, with the same numbers.
        output.index_copy_(0, call.rows, found)
    return output


def _call(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    call: Call,
    scale: float,
) -> torch.Tensor:
    """Rows of the queries in, rows of the outputs out, (rows, heads, size)."""
    _, heads, size = query.shape
    found = scaled_dot_product_attention(
        query.view(call.sequences, -1, heads, size).transpose(1, 2),
        _gathered(keys, call),
        _gathered(values, call),
        attn_mask=call.mask,
        scale=scale,
        enable_gqa=heads != keys.shape[1],
    )
    return found.transpose(1, 2).reshape(-1, heads, size)


def _gathered(cache: torch.Tensor, call: Call) -> torch.Tensor:
    """(sequences, heads, keys, size)."""
    found = cache.index_select(0, call.slots)
    return found.view(call.sequences, -1, *cache.shape[1:]).transpose(1, 2)
