"""Which open episodes a step waits for: ``offPolicy.onStale: Wait``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rl_trainer.algorithm.groups import select
from rl_trainer.algorithm.pacing import awaited, is_last_chance
from tests.unit.rl_trainer.algorithm.test_reuse import a_group


def test_a_step_waits_for_tokens_that_it_is_the_last_to_train() -> None:
    last = [oldest for oldest in range(10) if is_last_chance(oldest, step=9, max_staleness=2)]
    assert last == [6], "older ones are lost already, younger ones can be trained later"


def test_a_step_does_not_wait_where_it_has_no_place() -> None:
    expiring, young = a_group(0, step=6), a_group(1, step=8)
    assert awaited([6], [expiring], step=9, max_staleness=2) == 0
    assert awaited([6, 6], [expiring, young], step=9, max_staleness=2) == 1
    assert awaited([7], [young], step=9, max_staleness=2) == 0
    assert awaited([], [young], step=9, max_staleness=2) == 0


@given(
    staleness=st.integers(1, 4),
    per_step=st.integers(1, 4),
    finished=st.lists(st.integers(0, 5), min_size=4, max_size=8),
    running=st.lists(st.integers(0, 5), max_size=8),
)
def test_who_is_waited_for_is_trained_and_takes_the_place_of_nobody_who_expires(
    staleness: int, per_step: int, finished: list[int], running: list[int]
) -> None:
    step = 9
    read = [a_group(number, step=step - 1 - age) for number, age in enumerate(finished)]
    open_steps = [step - 1 - age for age in running]
    chosen, _ = select(read, step=step, max_staleness=staleness, wanted=per_step)
    number = awaited(open_steps, chosen, step=step, max_staleness=staleness)
    late = [
        a_group(100 + index, step=oldest)
        for index, oldest in enumerate(open_steps)
        if is_last_chance(oldest, step=step, max_staleness=staleness)
    ]
    then, _ = select([*read, *late[:number]], step=step, max_staleness=staleness, wanted=per_step)
    if len(chosen) == per_step:
        assert all(group in then for group in late[:number])
        given_up = [group for group in chosen if group not in then]
        assert all(group.is_trainable(step=step + 1, max_staleness=staleness) for group in given_up)
