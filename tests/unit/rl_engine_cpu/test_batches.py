"""Which sequences share a call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_engine_cpu.batches import (
    FREE_SCORES,
    MAX_PADDING_FACTOR,
    MAX_SCORES,
    MAX_SLOTS,
    batches,
)

LENGTH = st.one_of(st.integers(1, 60), st.integers(1, 3000))
SEQUENCE = st.tuples(LENGTH, LENGTH).map(lambda two: (min(two), max(two)))


@given(st.lists(SEQUENCE, min_size=1, max_size=40))
def test_every_sequence_is_in_one_call_and_padding_is_bounded(
    sequences: list[tuple[int, int]],
) -> None:
    queries, keys = [q for q, _ in sequences], [k for _, k in sequences]
    calls = batches(queries, keys)
    if calls is None:
        assert any(q * k > MAX_SCORES for q, k in sequences)
        return
    assert sorted(sequence for call in calls for sequence in call) == list(range(len(sequences)))
    for call in calls:
        slots = len(call) * max(keys[i] for i in call)
        scores = slots * max(queries[i] for i in call)
        asked = sum(queries[i] * keys[i] for i in call)
        assert scores <= MAX_SCORES
        assert len(call) == 1 or slots <= MAX_SLOTS
        assert len(call) == 1 or scores <= max(MAX_PADDING_FACTOR * asked, FREE_SCORES)


@pytest.mark.parametrize(
    ("queries", "keys", "calls"),
    [
        ([1], [5], [[0]]),
        ([1] * 3, [30, 20, 40], [[0, 1, 2]]),
        ([22, 1, 1], [22, 22, 30], [[0, 1, 2]]),  # cheap, whatever the padding
        ([1] * 4, [3000, 40, 20, 30], [[2, 3, 1], [0]]),
        ([400, 1, 1], [400, 400, 400], [[1, 2], [0]]),
        ([1, 1], [MAX_SLOTS, MAX_SLOTS], [[0], [1]]),
        ([1, 1], [MAX_SLOTS // 2, MAX_SLOTS // 2], [[0, 1]]),
        ([2048, 1], [2048, 5], [[1], [0]]),
        ([2049, 1], [2049, 5], None),
    ],
)
def test_similar_sequences_share_a_call(
    queries: list[int], keys: list[int], calls: list[list[int]] | None
) -> None:
    assert batches(queries, keys) == calls
