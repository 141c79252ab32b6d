from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_trainer.data.mixture import MAX_PERIOD, Mixture, quotas, schedule
from tests.examples import examples

FEW = settings(max_examples=examples(25), deadline=None)
SOURCES = st.lists(
    st.tuples(st.sampled_from([0.1, 0.25, 0.3, 0.5, 1.0, 2.0, 7.0]), st.integers(1, 30)),
    min_size=1,
    max_size=16,
)


def mixture(sources: list[tuple[float, int]], **changes: Any) -> Mixture:
    values: dict[str, Any] = {
        "names": [f"s{at}" for at in range(len(sources))],
        "weights": [weight for weight, _ in sources],
        "sizes": [size for _, size in sources],
        "seed": 42,
    }
    return Mixture(**values | changes)


@FEW
@given(SOURCES, st.integers(0, 10_000), st.integers(1, 400))
def test_every_window_holds_its_share_of_each_source(
    sources: list[tuple[float, int]], first: int, length: int
) -> None:
    mixed = mixture(sources)
    total = sum(weight for weight, _ in sources)
    drawn = Counter(mixed.at(first + offset).source for offset in range(length))
    for source, (weight, _) in enumerate(sources):
        assert abs(drawn[source] - length * weight / total) < 2


@FEW
@given(SOURCES)
def test_every_pass_over_a_source_holds_each_record_once(sources: list[tuple[float, int]]) -> None:
    mixed = mixture(sources)
    places = [mixed.at(position) for position in range(600)]
    assert len(set(places)) == len(places)  # never a record twice in an epoch of its source
    for source, (_, size) in enumerate(sources):
        mine = [(place.epoch, place.record) for place in places if place.source == source]
        epochs = [epoch for epoch, _ in mine]
        assert epochs == sorted(epochs) == [at // size for at in range(len(mine))]
        for epoch in range(len(mine) // size):
            assert sorted(index for at, index in mine if at == epoch) == list(range(size))


@FEW
@given(SOURCES, st.integers(0, 10**12))
def test_any_stream_position_is_computed_directly(
    sources: list[tuple[float, int]], position: int
) -> None:
    mixed, again = mixture(sources), mixture(sources)
    place = mixed.at(position)
    assert place == again.at(position)
    drawn = [mixed.drawn(index, before=position) for index in range(len(sources))]
    assert sum(drawn) == position
    assert drawn[place.source] // sources[place.source][1] == place.epoch


def test_seeds_epochs_and_sources_have_orders_of_their_own() -> None:
    def order(seed: int, source: int, epoch: int) -> list[int]:
        mixed = mixture([(1.0, 30), (1.0, 30)], seed=seed)
        drawn = (mixed.at(position) for position in range(120))
        return [draw.record for draw in drawn if (draw.source, draw.epoch) == (source, epoch)]

    orders = [order(1, 0, 0), order(2, 0, 0), order(1, 1, 0), order(1, 0, 1)]
    assert len({tuple(order) for order in orders}) == 4


def test_without_shuffling_records_come_in_their_order() -> None:
    mixed = mixture([(1.0, 3), (2.0, 2)], shuffle=False)
    first = [draw.record for draw in map(mixed.at, range(9)) if draw.source == 0]
    assert first == [0, 1, 2]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [([0.8, 0.2], (4, 1)), ([1.0], (1,)), ([0.1, 0.2, 0.7], (1, 2, 7)), ([3.0, 3.0], (1, 1))],
)
def test_decimal_weights_are_kept_exactly(weights: list[float], expected: tuple[int, ...]) -> None:
    assert quotas(weights) == expected


@FEW
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=16))
def test_schedules_of_any_weights_are_bounded(weights: list[float]) -> None:
    actual = quotas(weights)
    assert min(actual) >= 1
    assert sum(actual) <= MAX_PERIOD + len(weights)
    for weight, quota in zip(weights, actual, strict=True):
        assert abs(quota / sum(actual) - weight / sum(weights)) < 16 / MAX_PERIOD


@FEW
@given(st.lists(st.integers(1, 60), min_size=1, max_size=16))
def test_every_schedule_prefix_is_fair(turns: list[int]) -> None:
    period, counts = sum(turns), Counter[int]()
    for length, source in enumerate(schedule(turns), start=1):
        counts[source] += 1
        for at, quota in enumerate(turns):
            assert abs(counts[at] * period - length * quota) < period
