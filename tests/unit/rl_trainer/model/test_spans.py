"""Parts of a tensor put together where they came from."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_trainer.model.parallel import spans


@given(
    rows=st.lists(st.integers(0, 2), min_size=1, max_size=12),
    columns=st.lists(st.integers(0, 1), min_size=1, max_size=9),
)
def test_parts_of_any_division_make_the_whole(rows: list[int], columns: list[int]) -> None:
    """Each row and each column belongs to some rank, in pieces as fused matrices are divided."""
    whole = torch.arange(len(rows) * len(columns), dtype=torch.float32)
    whole = whole.reshape(len(rows), len(columns))
    result = torch.full_like(whole, -1)
    for row in range(3):
        for column in range(2):
            places = [
                [index for index, rank in enumerate(ranks) if rank == wanted]
                for ranks, wanted in ((rows, row), (columns, column))
            ]
            held = tuple(spans._ranges(each) for each in places)
            sent = whole[places[0]][:, places[1]].reshape(-1)
            assert spans.count(held) == sent.numel()
            copied = spans.copy(result, spans.whole(result.shape), sent, held)
            assert copied == sent.numel()
            assert spans.overlap(spans.whole(result.shape), held) == bool(copied)
    assert torch.equal(result, whole)


def test_indices_in_a_row_are_one_range() -> None:
    assert spans._ranges([0, 1, 2, 6, 7, 9]) == ((0, 3), (6, 8), (9, 10))
    assert spans._ranges([]) == ()
