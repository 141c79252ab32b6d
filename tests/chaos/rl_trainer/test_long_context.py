from __future__ import annotations

from benchmarks.trainer import long_context


def test_memory_of_131072_tokens_is_below_its_bar_and_linear_in_the_length() -> None:
    short, long = (
        long_context.ran(tokens, long_context.PACKED)
        for tokens in (long_context.SHORTEST, long_context.LENGTHS[-1])
    )
    assert long["process"] <= long_context.MOST_GIB * long_context.GIB
    each = long["allocated"] / long_context.LENGTHS[-1]
    assert each <= long_context.MOST_GROWTH * short["allocated"] / long_context.SHORTEST
