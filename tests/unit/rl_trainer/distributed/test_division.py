from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rl_trainer.distributed.division import shares

SIZES = st.lists(st.integers(0, 1000), max_size=60)


@given(SIZES, st.integers(1, 9))
def test_every_index_has_one_part_and_the_parts_are_balanced(sizes: list[int], parts: int) -> None:
    parted = shares(sizes, parts=parts)
    assert sorted(index for share in parted for index in share) == list(range(len(sizes)))
    sums = [sum(sizes[index] for index in share) for share in parted]
    assert max(sums) - min(sums) <= max(sizes, default=0)


def test_long_sequences_go_to_different_parts() -> None:
    assert shares([9, 1, 8, 2, 7, 3], parts=3) == [[0, 1], [2, 3], [4, 5]]


def test_a_single_part_gets_all_indices_in_order() -> None:
    assert shares([3, 9, 1], parts=1) == [[0, 1, 2]]
