"""Tensors stored in pieces of one division and read by parts of another."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rl_contracts.errors import IntegrityError
from rl_trainer.distributed.world import ALONE
from rl_trainer.model.parallel import pieces, spans
from rl_trainer.model.parallel.pieces import Piece, StoredTensor
from rl_trainer.model.parallel.spans import Spans
from tests.models import states

RANKS = 3
ROWS, COLUMNS = 7, 5
DIVISIONS = st.tuples(
    st.lists(st.integers(0, RANKS - 1), min_size=ROWS, max_size=ROWS),
    st.lists(st.integers(0, RANKS - 1), min_size=COLUMNS, max_size=COLUMNS),
)
"""The rank of each row, and of each column."""


def parts(division: tuple[list[int], list[int]]) -> list[tuple[list[int], list[int], Spans]]:
    """Rows and columns of each part, with its spans."""
    rows, columns = division
    made = []
    for row in range(RANKS):
        for column in range(RANKS):
            own = _indices(rows, row), _indices(columns, column)
            made.append((*own, tuple(spans._ranges(each) for each in own)))
    return made


def _indices(ranks: Sequence[int], wanted: int) -> list[int]:
    return [index for index, rank in enumerate(ranks) if rank == wanted]


def stored(whole: Tensor, division: tuple[list[int], list[int]]) -> StoredTensor:
    made = [
        Piece(held, whole[rows][:, columns].contiguous().clone)
        for rows, columns, held in parts(division)
        if spans.count(held)
    ]
    return StoredTensor(tuple(whole.shape), whole.dtype, tuple(made))


@given(written=DIVISIONS, read=DIVISIONS)
def test_what_one_division_wrote_any_other_reads(
    written: tuple[list[int], list[int]], read: tuple[list[int], list[int]]
) -> None:
    whole = torch.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)
    tensor = stored(whole, written)
    for rows, columns, wanted in parts(read):
        expected = whole[rows][:, columns]
        assert torch.equal(tensor.read(wanted).view(expected.shape), expected)


def test_a_missing_piece_is_an_error() -> None:
    whole = torch.zeros(ROWS, COLUMNS)
    tensor = stored(whole, ([0, 0, 0, 1, 1, 1, 1], [0] * COLUMNS))
    torn = StoredTensor(tensor.shape, tensor.dtype, tensor.pieces[:1])
    assert torch.equal(torn.read(torn.pieces[0].spans), whole[:3])
    with pytest.raises(IntegrityError, match="15 of 35 numbers"):
        torn.read(spans.whole(tensor.shape))


def test_scalars_and_vectors_are_kept_and_filled() -> None:
    named = {"step": torch.tensor(3.0), "bias": torch.arange(4, dtype=torch.bfloat16)}
    kept = pieces.own_copies(named, ALONE)
    targets = {name: torch.zeros_like(tensor) for name, tensor in named.items()}
    saved = states.stored(states.together([kept]))
    pieces.fill((targets[name], saved[name]) for name in named)
    assert all(torch.equal(targets[name], tensor) for name, tensor in named.items())
    with pytest.raises(RuntimeError, match="are stored"):
        pieces.fill([(torch.zeros(5), saved["bias"])])
