"""The pure parts of ``benchmarks.chaos``: what strikes when, and what it cost."""

from __future__ import annotations

import pytest

from benchmarks.support.strikes import (
    ACTS,
    LASTING,
    LONGEST_SECONDS,
    REST_SECONDS,
    SHORTEST_SECONDS,
    Act,
    Struck,
    false_rewards,
    lost_seconds,
    schedule,
    table,
    usual_seconds,
)


def test_schedule_is_the_seeds() -> None:
    assert schedule(seed=7, seconds=3600) == schedule(seed=7, seconds=3600)
    assert schedule(seed=7, seconds=3600) != schedule(seed=8, seconds=3600)


@pytest.mark.parametrize("seed", range(20))
def test_schedule_strikes_in_every_way_once_before_any_twice(seed: int) -> None:
    acts = schedule(seed=seed, seconds=3 * 3600)
    struck = [(act.kind, act.target) for act in acts]
    rounds = [struck[first : first + len(ACTS)] for first in range(0, len(struck), len(ACTS))]
    assert len(rounds) > 2
    assert all(set(each) == set(ACTS) for each in rounds[:-1])
    assert len(set(rounds[-1])) == len(rounds[-1])


@pytest.mark.parametrize("seconds", [30.0, 300.0, 3600.0])
def test_schedule_leaves_a_rest_after_every_act_and_ends_in_time(seconds: float) -> None:
    acts = schedule(seed=7, seconds=seconds)
    ends = [act.at + act.seconds + REST_SECONDS for act in acts]
    assert [act.at for act in acts[1:]] == pytest.approx(ends[:-1])
    assert all(end <= seconds for end in ends)
    assert bool(acts) == (seconds > REST_SECONDS)
    for act in acts:
        if act.kind in LASTING:
            assert SHORTEST_SECONDS <= act.seconds <= LONGEST_SECONDS
        else:
            assert act.seconds == 0


def test_lost_time_is_what_went_into_no_step() -> None:
    commits = [0.0, 2.0, 4.0, 6.0, 36.0, 38.0, 40.0]
    assert usual_seconds(commits) == 2.0
    # From 5 to 41: four steps of 2 s, and a fifth that had begun; 36 - 10 s are left.
    assert lost_seconds(commits, start=5.0, end=41.0, usual=2.0) == 26.0
    assert lost_seconds(commits, start=0.0, end=6.0, usual=2.0) == 0.0
    assert lost_seconds([], start=0.0, end=60.0, usual=2.0) == 58.0


def test_table_has_a_row_for_each_fault_the_most_expensive_first() -> None:
    kill = Act(kind="kill", target="sampler", at=0.0, seconds=0.0)
    stop = Act(kind="stop", target="store", at=60.0, seconds=9.0)
    struck = [Struck(kill, 1.0), Struck(stop, 30.0), Struck(kill, 4.0)]
    assert table(struck).splitlines()[2:] == [
        "| stop store | 1 | 30 | 30 |",
        "| kill sampler | 2 | 2 | 4 |",
    ]


def test_reward_that_scoring_again_does_not_give_is_false() -> None:
    assert false_rewards({"a": 1.0, "b": 0.0, "c": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}) == ["b"]
