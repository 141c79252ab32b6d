"""The work queue: once each, one worker per key, the earliest request holds, failures back off."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from rl_operator.process.work_queue import PERIODIC_YIELD_SECONDS, WorkQueue
from tests.waiting import HUNG_SECONDS, until


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


def take(queue: WorkQueue[str], count: int = 1) -> list[str | None]:
    return [queue.get(block=False) for _ in range(count)]


def test_a_key_waits_once_and_keys_come_in_order(queue: WorkQueue[str]) -> None:
    for key in ("a", "b", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert take(queue, 3) == ["a", "b", None]
    assert len(queue) == 0


def test_a_key_that_changes_while_a_worker_has_it_comes_again(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert take(queue) == ["a"]
    queue.add("a")
    assert take(queue) == [None]  # never two workers
    queue.done("a")
    assert take(queue) == ["a"]
    queue.done("a")
    assert take(queue) == [None]


def test_the_earliest_request_holds(queue: WorkQueue[str], clock: Clock) -> None:
    for seconds in (10, 5, 20):
        queue.add_after("a", seconds)
    clock.now = 4.9
    assert take(queue) == [None]
    clock.now = 5
    assert take(queue) == ["a"]
    queue.done("a")
    clock.now = 100
    assert take(queue) == [None]


def test_a_key_that_is_due_now_replaces_its_later_request(
    queue: WorkQueue[str], clock: Clock
) -> None:
    queue.add_after("a", 10)
    queue.add("a")
    assert take(queue) == ["a"]
    queue.done("a")
    clock.now = 11
    assert take(queue) == [None]


def test_backoff_doubles_up_to_its_maximum_and_is_reset_by_forget(
    queue: WorkQueue[str], clock: Clock
) -> None:
    delays = []
    for _ in range(12):
        queue.add("a")
        assert take(queue) == ["a"]
        delays.append(queue.add_rate_limited("a"))
        queue.done("a")
        clock.now += delays[-1] - 0.01
        assert take(queue) == [None]
        clock.now += 0.01
        assert take(queue) == ["a"]
        queue.done("a")
    assert delays[:4] == [0.5, 1, 2, 4]
    assert delays[-2:] == [120, 120]
    queue.forget("a")
    assert queue.add_rate_limited("a") == 0.5


def test_jitter_adds_up_to_a_quarter_to_the_backoff(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock=clock, jitter=lambda: 0.8)
    assert [queue.add_rate_limited("a") for _ in range(2)] == pytest.approx([0.6, 1.2])


def test_changed_keys_come_before_periodic_requeues(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after("poll", 1, periodic=True)
    queue.add_after("soon", 2)
    clock.now = 2
    queue.add("changed")
    queue.add("resync", periodic=True)
    assert take(queue, 5) == ["soon", "changed", "poll", "resync", None]


def test_a_periodic_requeue_whose_key_changes_loses_its_low_priority(
    queue: WorkQueue[str], clock: Clock
) -> None:
    for key in ("a", "b"):
        queue.add_after(key, 1, periodic=True)
    clock.now = 1
    queue.add("c")
    clock.now = 2
    queue.add("b")
    assert take(queue, 4) == ["c", "b", "a", None]


def test_a_periodic_requeue_yields_for_a_limited_time_only(
    queue: WorkQueue[str], clock: Clock
) -> None:
    queue.add("poll", periodic=True)
    clock.now = PERIODIC_YIELD_SECONDS - 0.1
    queue.add("before")
    clock.now = PERIODIC_YIELD_SECONDS + 0.1
    queue.add("after")
    assert take(queue, 3) == ["before", "poll", "after"]


def test_changes_within_the_minimal_interval_share_one_piece_of_work(clock: Clock) -> None:
    intervals = {"job": 0.25, "pool": 1.0}
    queue: WorkQueue[str] = WorkQueue(clock=clock, min_interval=intervals.__getitem__)
    for key in intervals:
        queue.add(key)
    assert take(queue, 2) == ["job", "pool"]  # the first change at once
    clock.now = 0.125
    for key in intervals:
        queue.add(key)  # while a worker has it
        queue.done(key)
        queue.add(key)
    assert take(queue) == [None]
    clock.now = 0.25
    assert take(queue, 2) == ["job", None]
    queue.add_after("job", 0.0625)  # what the work itself asks for is not delayed
    queue.done("job")
    clock.now = 0.3125
    assert take(queue) == ["job"]
    clock.now = 1.0
    assert take(queue) == ["pool"]


def test_a_key_that_nothing_requeues_is_forgotten(clock: Clock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock=clock, min_interval=lambda key: 10.0)
    queue.add("a")
    assert take(queue) == ["a"]
    queue.done("a")
    queue.add("a")  # another object of its name: it does not wait for the interval
    assert take(queue) == ["a"]
    queue.done("a")
    assert not queue._started


def test_the_seconds_since_a_key_was_due_are_reported(clock: Clock) -> None:
    waited: list[float] = []
    queue: WorkQueue[str] = WorkQueue(clock=clock, waited=waited.append)
    queue.add("a")
    clock.now = 2
    queue.add("a")  # due since its first request
    queue.add_after("b", 5, periodic=True)
    clock.now = 10
    assert take(queue, 2) == ["a", "b"]
    assert waited == [10, 3]  # b was due at 7


@contextmanager
def workers(queue: WorkQueue[str], count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that wait on a queue; they end with the test, also when it has failed."""
    with ThreadPoolExecutor(count) as threads:
        try:
            yield threads
        finally:
            queue.close()


def test_workers_wake_for_keys_and_for_due_times() -> None:
    queue: WorkQueue[str] = WorkQueue(jitter=lambda: 0.0)
    with workers(queue, 3) as threads:
        taken = [threads.submit(queue.get) for _ in range(3)]
        queue.add_after("later", 0.05)
        queue.add("now")
        queue.add("also")
        keys = [future.result(HUNG_SECONDS) for future in taken]
        assert sorted(filter(None, keys)) == ["also", "later", "now"]
        queue.add_rate_limited("now")
        queue.done("now")
        assert threads.submit(queue.get).result(HUNG_SECONDS) == "now"


def test_close_releases_waiting_workers_and_hands_out_no_more_keys() -> None:
    queue: WorkQueue[str] = WorkQueue()
    with workers(queue, 3) as threads:
        taken = [threads.submit(queue.get) for _ in range(3)]
        queue.add_after("later", 100)
        queue.close()
        assert [future.result(HUNG_SECONDS) for future in taken] == [None] * 3
    queue.add("now")
    assert queue.get() is None
    assert len(queue) == 1


def test_many_workers_get_every_key_and_no_two_have_the_same() -> None:
    queue: WorkQueue[str] = WorkQueue()
    keys = [str(index) for index in range(20)]
    held = {key: threading.Lock() for key in keys}
    done = threading.Semaphore(0)

    def work() -> None:
        while (key := queue.get()) is not None:
            assert held[key].acquire(blocking=False)
            held[key].release()  # before ``done``: another worker may have it from then on
            queue.done(key)
            done.release()

    with workers(queue, 8) as threads:
        futures = [threads.submit(work) for _ in range(8)]
        for key in keys:
            queue.add(key)
        for _ in keys:
            assert done.acquire(timeout=HUNG_SECONDS)
        for key in keys * 10:  # while workers have some of them
            queue.add(key)
        until(lambda: len(queue) == 0, what="an empty queue")
        queue.close()
        for future in futures:
            future.result(HUNG_SECONDS)


@pytest.mark.parametrize("seed", range(5))
def test_no_key_is_missed_whenever_it_is_due(seed: int) -> None:
    queue: WorkQueue[str] = WorkQueue(clock=time.monotonic)
    chance = random.Random(seed)
    keys = [str(index) for index in range(300)]
    taken: list[str] = []

    def work() -> None:
        while (key := queue.get()) is not None:
            taken.append(key)
            queue.done(key)

    with workers(queue, 8) as threads:
        for _ in range(8):
            threads.submit(work)
        for key in keys:
            if chance.random() < 0.3:
                queue.add(key)
            else:
                queue.add_after(key, chance.random() / 20, periodic=chance.random() < 0.5)
        until(lambda: len(taken) == len(keys), what="all keys")
    assert sorted(taken) == sorted(keys)
