"""Attention of a batch against attention of each sequence alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from rl_engine_cpu.attention import attend, plan

SIZE = 8
CLOSE = {torch.float32: 2e-6, torch.bfloat16: 2e-2}
Lengths = list[tuple[int, int]]
"""Of each sequence: tokens that are cached, and new ones after them."""


@dataclass(frozen=True)
class Cache:
    """Sequences scattered over a cache whose other slots hold what no one may read."""

    table: torch.Tensor
    requests: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    query: torch.Tensor


def filled(lengths: Lengths, *, heads: tuple[int, int], dtype: torch.dtype, shared: int) -> Cache:
    """A cache for these sequences; the first ``shared`` tokens of all have the same slots."""
    random = torch.Generator().manual_seed(0)
    longest, rows = max(a + b for a, b in lengths), len(lengths) + 3
    free = (torch.randperm(4 * rows * longest, generator=random) + 1).to(torch.int32)
    table = free[: rows * longest].view(rows, longest).clone()
    requests = torch.randperm(rows, generator=random)[: len(lengths)]
    table[requests, :shared] = table[requests[0], :shared].clone()
    used = torch.cat([table[r, : a + b] for r, (a, b) in zip(requests, lengths, strict=True)])

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random).to(dtype)

    many, few = heads
    keys = torch.full((4 * rows * longest + 1, few, SIZE), float("nan"), dtype=dtype)
    values = keys.clone()
    keys[used], values[used] = noise(len(used), few, SIZE), noise(len(used), few, SIZE)
    return Cache(
        table=table,
        requests=requests,
        keys=keys,
        values=values,
        query=noise(sum(new for _, new in lengths), many, SIZE),
    )


def one_by_one(cache: Cache, lengths: Lengths, *, scale: float) -> torch.Tensor:
    outputs, start = [], 0
    for request, (cached, new) in zip(cache.requests, lengths, strict=True):
        slots = cache.table[request, : cached + new]
        query = cache.query[start : start + new].movedim(1, 0)[None]
        keys, values = (
            values[slots]
            .movedim(1, 0)
            .repeat_interleave(query.shape[1] // values.shape[1], 0)[None]
            for values in (cache.keys, cache.values)
        )
        mask = torch.ones(new, cached + new).bool().tril(diagonal=cached)
        out = scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)
        outputs.append(out[0].movedim(1, 0))
        start += new
    return torch.cat(outputs)


def gap(lengths: Lengths, *, heads: tuple[int, int], dtype: torch.dtype, shared: int = 0) -> float:
    cache = filled(lengths, heads=heads, dtype=dtype, shared=shared)
    calls = plan(
        table=cache.table,
        requests=cache.requests,
        queries=[new for _, new in lengths],
        keys=[cached + new for cached, new in lengths],
        dtype=dtype,
    )
    assert calls is not None
    output = attend(cache.query, cache.keys, cache.values, calls=calls, scale=0.3)
    assert (output.shape, output.dtype) == (cache.query.shape, dtype)
    return float((output - one_by_one(cache, lengths, scale=0.3)).abs().max())


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)], ids=str)
@pytest.mark.parametrize(
    "lengths",
    [
        [(0, 1)],
        [(0, 22)],
        [(21, 1)] * 8,
        [(30, 1), (5, 1), (17, 1)],
        [(0, 22), (21, 1), (10, 4)],
        [(1500, 1), (3, 1), (1400, 1), (0, 1)],
        [(0, 300), (299, 1), (128, 172), (9, 1)],
    ],
    ids=str,
)
def test_batched_attention_equals_each_sequence_alone(
    lengths: Lengths, heads: tuple[int, int], dtype: torch.dtype
) -> None:
    assert gap(lengths, heads=heads, dtype=dtype) < CLOSE[dtype]


LENGTHS = st.lists(st.tuples(st.integers(0, 90), st.integers(1, 90)), min_size=1, max_size=10)


@given(
    lengths=LENGTHS,
    decode=st.booleans(),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    share=st.booleans(),
)
def test_batched_attention_equals_each_sequence_alone_for_any_batch(
    lengths: Lengths, decode: bool, heads: tuple[int, int], share: bool
) -> None:
    lengths = [(cached, 1 if decode else new) for cached, new in lengths]
    shared = min(cached for cached, _ in lengths) if share else 0
    assert gap(lengths, heads=heads, dtype=torch.float32, shared=shared) < CLOSE[torch.float32]


def test_prompt_too_long_for_a_mask_is_not_planned() -> None:
    table = torch.zeros(1, 4096, dtype=torch.int32)
    assert (
        plan(
            table=table,
            requests=torch.tensor([0]),
            queries=[4096],
            keys=[4096],
            dtype=torch.float32,
        )
        is None
    )
