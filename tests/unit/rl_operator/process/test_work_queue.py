"""The work queue: once each, one worker per key, earliest wish holds, failures wait longer."""

from __future__ import annotations

import math

import pytest

from rl_operator.process.work_queue import (
    CROWD,
    LEISURE_SECONDS,
    LEISURELY_SECONDS,
    PATIENCE_SECONDS,
    RUSH,
    RUSH_SECONDS,
    SHARE,
    TURN_SECONDS,
    WorkQueue,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue[str]:
    return WorkQueue(clock=clock, jitter=lambda: 0.0)


def test_a_key_waits_once_and_in_order(queue: WorkQueue[str]) -> None:
    for key in ("a", "b", "a"):
        queue.add(key)
    assert [queue.take(), queue.take(), queue.take()] == ["a", "b", None]


def test_a_key_that_changes_while_worked_on_comes_again(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert queue.take() == "a"
    queue.add("a")
    assert queue.take() is None  # never two workers
    queue.done("a")
    assert queue.take() == "a"
    queue.done("a")
    assert queue.take() is None


def test_what_is_seen_while_worked_on_is_no_reason_to_come_again(
    queue: WorkQueue[str], clock: Clock
) -> None:
    queue.add("a")
    queue.add("b")
    assert queue.take() == "a"
    queue.add("a")
    queue.add("a", within=2)
    for key in ("a", "b"):  # b is not at work: nobody is about to look at it
        queue.seen(key)
    queue.done("a")
    clock.now = 100
    assert [queue.take(), queue.take()] == ["b", None]
    queue.add("a")
    assert queue.take() == "a"
    queue.seen("a")
    queue.add("a")  # afterwards
    queue.done("a")
    assert queue.take() == "a"


def test_it_is_busy_while_work_is_due_or_done(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after("a", 5)
    assert not queue.busy
    clock.now = 5
    queue.add("b")
    assert queue.busy
    assert {queue.take(), queue.take()} == {"a", "b"}
    queue.done("a")
    assert queue.busy
    queue.done("b")
    assert not queue.busy


def test_the_earliest_wish_holds(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 20)
    assert queue.due_at() == 5
    clock.now = 5
    assert queue.take() == "a"
    queue.done("a")
    clock.now = 100
    assert queue.take() is None


def test_work_at_once_replaces_work_later(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after("a", 10)
    queue.add("a")
    assert queue.take() == "a"
    queue.done("a")
    clock.now = 11
    assert queue.take() is None


def test_failures_wait_longer_each_time_and_are_forgotten(
    queue: WorkQueue[str], clock: Clock
) -> None:
    delays = []
    for _ in range(12):
        queue.add("a")
        assert queue.take() == "a"
        queue.done("a")
        delays.append(queue.failed("a"))
        clock.now += 1000
    assert delays[:4] == [0.5, 1, 2, 4]
    assert delays[-1] == 120
    queue.succeeded("a")
    assert queue.failed("a") == 0.5


def test_what_is_under_way_is_finished_first(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(
        clock=clock, jitter=lambda: 0.0, begins=lambda key: key.startswith("job")
    )
    queue.add("job a")
    assert queue.take() == "job a"
    queue.succeeded("job a")
    queue.done("job a")
    for key in ("job b", "job c", "pool a", "job a"):
        queue.add(key)
    assert len(queue) == 4
    assert [queue.take() for _ in range(5)] == ["pool a", "job a", "job b", "job c", None]
    queue.done("job b")  # it has failed: nothing is under way with it
    queue.forget("job a")
    queue.done("job a")
    for key in ("job b", "job a", "pool b"):
        queue.add(key)
    assert [queue.take() for _ in range(3)] == ["pool b", "job b", "job a"]


def test_changes_that_come_fast_share_a_look(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock=clock, jitter=lambda: 0.0, spacing=lambda key: 0.25)
    queue.add("a")
    assert queue.take() == "a"  # the first one at once
    clock.now = 0.125
    queue.add("a")
    queue.done("a")
    queue.add("a")
    assert (queue.take(), len(queue)) == (None, 0)
    assert queue.due_at() == 0.25
    clock.now = 0.25
    assert queue.take() == "a"
    queue.done("a")
    assert queue.take() is None
    queue.add_after("a", 0.0625)  # what a look asks for itself comes when it asks
    queue.add("a")
    clock.now = 0.3125
    assert queue.take() == "a"
    queue.forget("a")
    queue.add("a")
    queue.done("a")  # what begins anew does so at once
    assert queue.take() == "a"
    queue.done("a")
    clock.now = 1.0
    queue.add("a")
    assert queue.take() == "a"


def test_changes_of_some_share_a_look_for_longer(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(
        clock=clock, jitter=lambda: 0.0, spacing={"job": 0.25, "pool": 1.0}.__getitem__
    )
    for key in ("job", "pool"):
        queue.add(key)
        assert queue.take() == key
        queue.done(key)
        queue.add(key)
    clock.now = 0.25
    assert [queue.take(), queue.take()] == ["job", None]
    clock.now = 1.0
    assert queue.take() == "pool"


def test_what_waits_already_keeps_its_turn(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock=clock, jitter=lambda: 0.0, spacing=lambda key: 10.0)
    for key in ("a", "b"):
        queue.add(key)
        assert queue.take() == key
        queue.done(key)
        queue.add_after(key, 1.0)
    clock.now = 1.0
    assert queue.take() == "a"  # b is released, too
    queue.add("b")
    assert queue.take() == "b"


def test_what_is_new_waits_for_a_while_only(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(
        clock=clock, jitter=lambda: 0.0, begins=lambda key: key == "job"
    )
    queue.add("job")
    clock.now = PATIENCE_SECONDS - 1
    queue.add("pool a")
    queue.add("pool b")
    assert queue.take() == "pool a"
    clock.now = PATIENCE_SECONDS
    assert [queue.take(), queue.take()] == ["job", "pool b"]


def test_what_has_waited_takes_turns_with_what_is_under_way(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(
        clock=clock, jitter=lambda: 0.0, begins=lambda key: key.startswith("job")
    )
    for key in ("job 1", "job 2", "pool a", "pool b", "pool c"):
        queue.add(key)
    clock.now = PATIENCE_SECONDS
    assert [queue.take(), queue.take()] == ["job 1", "pool a"]
    clock.now += TURN_SECONDS
    assert [queue.take() for _ in range(3)] == ["job 2", "pool b", "pool c"]


def test_something_new_has_its_share(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(
        clock=clock, jitter=lambda: 0.0, begins=lambda key: key.startswith("job")
    )
    for key in ("job 1", "job 2", *(f"pool {index}" for index in range(2 * SHARE))):
        queue.add(key)
    taken = [queue.take() for _ in range(2 * SHARE + 2)]
    assert [taken.index("job 1"), taken.index("job 2")] == [SHARE - 1, 2 * SHARE - 1]


def test_little_begins_while_much_is_under_way(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(
        clock=clock, jitter=lambda: 0.0, begins=lambda key: key.startswith("job")
    )
    crowd = [f"pool {index}" for index in range(CROWD * 5 * SHARE)]
    for key in ("job 1", *crowd):
        queue.add(key)
    taken: list[str | None] = []
    while "job 1" not in taken:  # those that are taken come again, as they do until they are Ready
        taken.append(queue.take())
        queue.done(str(taken[-1]))
        queue.add(str(taken[-1]))
    assert len(taken) == 5 * SHARE


def test_looks_by_the_clock_wait_for_what_has_changed(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after("clock", LEISURE_SECONDS)
    queue.add_after("soon", LEISURE_SECONDS / 2)
    queue.add("may wait", within=1.0)
    clock.now = LEISURE_SECONDS
    queue.add("changed")
    assert len(queue) == 1
    taken = [queue.take() for _ in range(5)]
    assert taken == ["changed", "soon", "may wait", "clock", None]


def test_what_waits_and_changes_then_comes_at_once(queue: WorkQueue[str], clock: Clock) -> None:
    for key in ("a", "b"):
        queue.add_after(key, LEISURE_SECONDS)
    clock.now = LEISURE_SECONDS
    queue.add("c")
    assert queue.take() == "c"
    queue.add("d")
    queue.add("b")
    assert len(queue) == 3
    assert [queue.take() for _ in range(4)] == ["d", "b", "a", None]


def test_what_is_seen_need_not_be_looked_at_later(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add("a", within=1.0)
    queue.add_after("a", LEISURE_SECONDS)
    queue.add("a")
    assert queue.take() == "a"
    queue.add("a", within=1.0)  # it may have been read before
    queue.done("a")
    clock.now = 1.0
    assert queue.take() == "a"
    queue.done("a")
    clock.now = 1000.0
    assert queue.take() is None


def test_looks_by_the_clock_have_their_share_in_the_end(
    queue: WorkQueue[str], clock: Clock
) -> None:
    for key in ("clock 1", "clock 2"):
        queue.add_after(key, LEISURE_SECONDS)
    clock.now = LEISURE_SECONDS + LEISURELY_SECONDS
    for number in range(3 * SHARE):
        queue.add(f"changed {number}")
    taken = [queue.take() for _ in range(3 * SHARE)]
    assert [taken.index("clock 1"), taken.index("clock 2")] == [SHARE - 1, 2 * SHARE - 1]


def look_at_changes(queue: WorkQueue[str], count: int) -> None:
    """Of as many objects, none of which is left."""
    for number in range(count):
        queue.add(f"changed {number}")
        assert queue.take() == f"changed {number}"
        queue.done(f"changed {number}")


@pytest.mark.parametrize(("changes", "waits"), [(RUSH, True), (RUSH - 1, False)])
def test_looks_by_the_clock_wait_for_the_end_of_a_rush(
    queue: WorkQueue[str], clock: Clock, changes: int, waits: bool
) -> None:
    queue.add_after("clock", LEISURE_SECONDS)
    clock.now = LEISURE_SECONDS
    look_at_changes(queue, changes)
    if waits:
        assert (queue.take(), queue.due_at()) == (None, clock.now + RUSH_SECONDS)
        queue.add("changed")
        assert queue.take() == "changed"  # which is not kept waiting
        clock.now += RUSH_SECONDS
    assert queue.take() == "clock"
    assert queue.due_at() == math.inf


def test_no_rush_is_waited_for_for_long(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after("clock", LEISURE_SECONDS)
    clock.now = LEISURE_SECONDS
    for _ in range(int(LEISURELY_SECONDS / RUSH_SECONDS)):
        look_at_changes(queue, RUSH)
        assert (queue.take(), queue.due_at()) == (None, clock.now + RUSH_SECONDS)
        clock.now += RUSH_SECONDS - 0.125
        look_at_changes(queue, RUSH)
        clock.now += 0.125
    assert queue.due_at() <= clock.now
    assert queue.take() == "clock"


def test_the_time_that_a_key_was_due_is_told(clock: Clock) -> None:
    told: list[float] = []
    queue: WorkQueue[str] = WorkQueue(clock=clock, jitter=lambda: 0.0, waited=told.append)
    queue.add("a")
    clock.now = 2
    queue.add("a")  # waits since its first wish
    queue.add_after("b", 5)
    clock.now = 10
    assert (queue.take(), queue.take()) == ("a", "b")
    assert told == [10, 3]  # b was due at 7
    queue.add("a")  # while it is worked on: due once that has ended
    clock.now = 20
    queue.done("a")
    clock.now = 21
    assert queue.take() == "a"
    assert told[-1] == 1
