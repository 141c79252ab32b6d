"""Which tokens of a row are whose; the exchange itself is compared with one process in the soak."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_trainer.algorithm.packing import collate
from rl_trainer.distributed.context_ranks import ContextRanks, repeats
from rl_trainer.model.policy import own_states, own_tokens
from tests.models.families import sample

LENGTHS = st.lists(st.integers(4, 30), min_size=1, max_size=6)


def members(size: int) -> list[ContextRanks]:
    """The views of all ranks, without processes."""
    ranks = [ContextRanks.__new__(ContextRanks) for _ in range(size)]
    for number, each in enumerate(ranks):
        each.rank, each.size = number, size
    return ranks


@given(LENGTHS, st.integers(2, 5))
def test_ranks_have_all_tokens_and_their_states_once_and_in_order(
    lengths: list[int], size: int
) -> None:
    packed = collate(
        [sample(each, at) for at, each in enumerate(lengths)], tuple(range(len(lengths)))
    )
    total, ranks = sum(lengths), members(size)
    row = torch.cat([each.part(packed.tokens) for each in ranks], dim=1)
    assert torch.equal(row[:, :total], packed.tokens)
    assert row.shape[1] == -(-total // size) * size
    own = [own_tokens(packed, each) for each in ranks]
    assert [place.start for place in own[1:]] == [place.stop for place in own[:-1]]
    assert (own[0].start, own[-1].stop) == (0, len(packed.sources))
    seen = [own_states(each.part(packed.tokens)[..., None], packed, each) for each in ranks]
    assert torch.equal(torch.cat(seen)[:, 0], packed.tokens[0, packed.sources])


@given(LENGTHS, st.integers(2, 5))
def test_parts_of_sequences_fill_each_ranks_tokens(lengths: list[int], size: int) -> None:
    ranks = members(size)
    row = ranks[0].lengths(tuple(lengths))
    assert sum(row) % size == 0
    cut = [each.own_lengths(row) for each in ranks]
    assert {sum(each) for each in cut} == {sum(row) // size}
    borders = {0, *torch.tensor(row).cumsum(0).tolist()}
    first, last = ranks[1].span(sum(row))
    ends = (first + torch.tensor(cut[1]).cumsum(0)).tolist()
    assert set(ends) == {border for border in borders if first < border < last} | {last}


@given(LENGTHS, st.integers(2, 5))
def test_positions_restart_where_parts_of_sequences_begin(lengths: list[int], size: int) -> None:
    """Transformers finds the borders there: zeros behind the end are sequences of one token."""
    samples = [sample(each, at) for at, each in enumerate(lengths)]
    packed = collate(samples, tuple(range(len(lengths))))
    for each in members(size):
        positions = each.part(packed.positions)[0]
        restarts = (positions.diff() != 1).nonzero()[:, 0] + 1
        own = torch.tensor(each.own_lengths(each.lengths(packed.lengths)))
        assert restarts.tolist() == own.cumsum(0)[:-1].tolist()


@pytest.mark.parametrize(
    ("heads", "ranks", "times"), [(8, 2, 1), (2, 2, 1), (2, 4, 2), (1, 4, 4), (4, 6, 3)]
)
def test_few_heads_of_keys_are_repeated_until_all_ranks_have_equally_many(
    heads: int, ranks: int, times: int
) -> None:
    assert repeats(heads, ranks) == times


def test_a_part_of_a_microbatch_knows_which_of_its_tokens_are_this_ranks() -> None:
    packed = collate([sample(12, 0), sample(9, 1)], (0, 1))
    _, last = members(2)
    whole = own_tokens(packed, last)
    num_own = 0
    for place, part in packed.parts(1):
        own = own_tokens(part, last)
        start = max(whole.start, place.start)
        assert own.stop - own.start == max(0, min(whole.stop, place.stop) - start)
        num_own += own.stop - own.start
        assert part.lengths == (12, 9), "the row is whole"
    assert num_own == whole.stop - whole.start
