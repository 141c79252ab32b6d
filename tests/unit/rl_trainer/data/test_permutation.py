from __future__ import annotations

from collections import Counter
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from rl_trainer.data.permutation import shuffled
from tests.examples import examples


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 700), st.text(max_size=9))
def test_every_shuffle_is_a_permutation(size: int, key: str) -> None:
    assert sorted(shuffled(index, size=size, key=key) for index in range(size)) == list(range(size))


@given(st.integers(1, 2**40), st.data())
def test_shuffling_a_huge_source_takes_constant_time(size: int, data: st.DataObject) -> None:
    first, second = (data.draw(st.integers(0, size - 1)) for _ in range(2))
    places = [shuffled(index, size=size, key="k") for index in (first, second)]
    assert all(0 <= place < size for place in places)
    assert (places[0] == places[1]) == (first == second)


def test_shuffles_are_about_uniform() -> None:
    draws = 4800
    seen = Counter(
        tuple(shuffled(index, size=4, key=f"{draw}") for index in range(4)) for draw in range(draws)
    )
    expected = draws / 24
    chi_square = sum(
        (seen[permutation] - expected) ** 2 / expected for permutation in permutations(range(4))
    )
    assert chi_square < 49.7  # 0.1 % of 23 degrees of freedom


def test_shuffles_are_stable_across_machines() -> None:
    assert [shuffled(index, size=10, key="42/gsm8k/0") for index in range(10)] == ORDER


ORDER = [8, 5, 0, 7, 9, 1, 4, 6, 2, 3]
