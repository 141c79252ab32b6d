"""What nobody waits for passes in its order: when there is nothing else to do, or late enough."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.process.dropped_events import GivenUp
from rl_operator.process.event_queue import Lane, Task

SECONDS, MOST = 10.0, 50


def at_once(task: Task) -> Future[None]:
    """As an executor that is done with it before anybody asks."""
    done = Future[None]()
    try:
        task()
    except ArithmeticError as error:
        done.set_exception(error)
    else:
        done.set_result(None)
    return done


class Watch:
    """A lane, and when each of its tasks was put in and done."""

    def __init__(self, start: Callable[[Task], Future[None]] = at_once) -> None:
        self.now, self.put_in, self.done = 0.0, list[float](), list[tuple[int, float]]()
        lost = GivenUp(clock=lambda: self.now)
        self.lane = Lane(start, clock=lambda: self.now, seconds=SECONDS, given_up=lost, most=MOST)

    def put(self, *, urgent: bool = False) -> None:
        number = len(self.put_in)
        self.put_in.append(self.now)
        self.lane.put(lambda: self.done.append((number, self.now)), urgent=urgent)

    def numbers(self) -> list[int]:
        return [number for number, _ in self.done]


def test_it_waits_while_there_is_other_work() -> None:
    watch = Watch()
    watch.put()
    watch.now = 4.0
    watch.put()
    watch.lane.release(busy=True)
    assert watch.numbers() == []
    watch.now = 10.0
    watch.lane.release(busy=True)
    assert watch.numbers() == [0]
    watch.lane.release(busy=False)
    assert watch.numbers() == [0, 1]
    assert len(watch.lane) == 0


def test_what_is_urgent_waits_for_nothing_and_passes_the_others() -> None:
    watch = Watch()
    watch.put()
    for _ in range(2):
        watch.put(urgent=True)
    watch.lane.release(busy=True)
    assert watch.numbers() == [1, 2]
    watch.put(urgent=True)
    watch.lane.release(busy=False)
    assert watch.numbers() == [1, 2, 3, 0]


def test_at_the_end_what_is_urgent_comes_first() -> None:
    watch = Watch()
    watch.put()
    watch.put(urgent=True)
    watch.lane.end()
    assert watch.numbers() == [1, 0]


def test_of_too_many_urgent_ones_are_given_up_last() -> None:
    watch = Watch()
    for number in range(MOST + 2):
        watch.put(urgent=number != 1)
    assert len(watch.lane) == MOST
    watch.lane.release(busy=False)
    assert watch.numbers() == list(range(2, MOST + 2))


STEP = st.tuples(st.sampled_from(["put", "busy", "idle"]), st.floats(0.0, 3.0))


@given(steps=st.lists(STEP, max_size=MOST))
def test_each_is_done_once_in_order_and_in_time(steps: list[tuple[str, float]]) -> None:
    watch = Watch()
    for what, seconds in steps:
        watch.now += seconds
        if what == "put":
            watch.put()
        watch.lane.release(busy=what != "idle")
        if what == "idle":
            assert len(watch.done) == len(watch.put_in)
    watch.lane.release(busy=False)
    assert watch.numbers() == list(range(len(watch.put_in)))
    late = [at - watch.put_in[number] for number, at in watch.done]
    assert all(one <= SECONDS + 3.0 for one in late)  # and no longer than between two releases


def test_of_too_many_the_oldest_are_given_up(caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    for _ in range(MOST + 2000):
        watch.put()
    assert len(watch.lane) == MOST
    watch.now = 31.0
    watch.lane.release(busy=True)
    assert [record.getMessage() for record in caplog.records] == [
        "events given up: 1; the last one: 50 wait already",
        "events given up: 1999; the last one: 50 wait already",
    ]
    watch.lane.release(busy=False)
    assert watch.numbers() == list(range(2000, MOST + 2000))


def test_one_at_a_time_is_under_way() -> None:
    started, now = list[tuple[Task, Future[None]]](), 0.0

    def start(task: Task) -> Future[None]:
        started.append((task, Future()))
        return started[-1][1]

    done = list[str]()
    lost = GivenUp(clock=lambda: now)
    lane = Lane(start, clock=lambda: now, seconds=SECONDS, given_up=lost)
    lane.put(lambda: done.append("first"))
    lane.release(busy=False)
    lane.put(lambda: done.append("second"))
    lane.release(busy=False)
    assert len(started) == 1
    task, future = started[0]
    task()
    assert done == ["first", "second"]  # what came meanwhile passes with it
    future.set_result(None)
    lane.release(busy=False)
    assert len(started) == 1


def test_what_fails_is_told_to_the_one_who_lets_pass() -> None:
    watch = Watch()
    watch.lane.put(lambda: watch.put_in.append(1 // 0))
    watch.lane.release(busy=False)
    with pytest.raises(ZeroDivisionError):
        watch.lane.release(busy=False)


def test_at_the_end_everything_passes() -> None:
    watch = Watch()
    watch.put()
    watch.lane.release(busy=True)
    watch.lane.end()
    assert watch.numbers() == [0]


def test_what_fails_at_the_end_is_told_and_the_rest_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = Watch()
    for _ in range(2):
        watch.lane.put(lambda: watch.put_in.append(1 // 0))
    watch.put()
    watch.lane.end()
    watch.lane.close()
    assert watch.numbers() == [0]
    (told,) = caplog.records
    assert told.getMessage() == "2 failed at the end, the first with this"
    assert told.exc_info is not None
    assert told.exc_info[0] is ZeroDivisionError


def test_what_fails_while_the_process_ends_already_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    under_way = Future[None]()
    watch = Watch(lambda task: under_way)
    watch.put()
    watch.lane.release(busy=False)
    watch.lane.end()
    under_way.set_exception(ZeroDivisionError())
    watch.lane.close()
    assert len(caplog.records) == 1


def test_what_the_end_has_no_time_for_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    never = Future[None]()
    never.cancel()
    watch = Watch(lambda task: never)
    for _ in range(3):
        watch.put()
    watch.lane.end()
    watch.put()  # by a look that goes on
    watch.lane.close()
    assert [record.getMessage() for record in caplog.records] == [
        "events given up: 1; the last one: the process ends",
        "events given up: 3; the last one: no time was left for it",
    ]
