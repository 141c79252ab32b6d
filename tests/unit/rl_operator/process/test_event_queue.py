"""The event queue: warnings first, bounded, drained at the end, drops counted and logged."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.kube import metrics
from rl_operator.process.event_queue import LOG_INTERVAL_SECONDS, EventQueue
from tests.waiting import HUNG_SECONDS

CAPACITY = 50


class Poster:
    """An event queue, and which of its tasks were done."""

    def __init__(self) -> None:
        self.now, self.count, self.done = 0.0, 0, list[int]()
        self.queue = EventQueue(clock=lambda: self.now, capacity=CAPACITY)

    def put(self, *, warning: bool = False) -> None:
        number = self.count
        self.count += 1
        self.queue.put(lambda: self.done.append(number), warning=warning)

    def drain(self) -> list[int]:
        self.queue.close()
        self.queue.run()
        return self.done


def dropped() -> float:
    return metrics.REGISTRY.get_sample_value("rl_operator_events_dropped_total") or 0.0


@given(warnings=st.lists(st.booleans(), max_size=CAPACITY))
def test_every_event_is_posted_once_warnings_first_and_each_kind_in_order(
    warnings: list[bool],
) -> None:
    poster = Poster()
    for warning in warnings:
        poster.put(warning=warning)
    by_priority = sorted(range(len(warnings)), key=lambda number: (not warnings[number], number))
    assert poster.drain() == by_priority


def test_events_are_posted_while_others_come() -> None:
    queue, posted = EventQueue(clock=lambda: 0.0), threading.Semaphore(0)
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(queue.run)
        for _ in range(3):
            queue.put(lambda: posted.release())
            assert posted.acquire(timeout=HUNG_SECONDS)
        queue.close()
        running.result(HUNG_SECONDS)


def test_a_full_queue_drops_what_comes_and_counts_it(caplog: pytest.LogCaptureFixture) -> None:
    poster, before = Poster(), dropped()
    for _ in range(CAPACITY + 20):
        poster.put()
    assert dropped() == before + 20
    poster.now = LOG_INTERVAL_SECONDS
    poster.put()
    assert [record.getMessage() for record in caplog.records] == [
        "events dropped: 1, the last because: 50 events are waiting already",
        "events dropped: 20, the last because: 50 events are waiting already",
    ]
    assert poster.drain() == list(range(CAPACITY))


def test_a_task_that_fails_ends_the_loop_with_its_error() -> None:
    queue = EventQueue(clock=lambda: 0.0)
    queue.put(lambda: [1 // 0].clear())
    with pytest.raises(ZeroDivisionError):
        queue.run()


def test_events_without_time_at_the_end_are_dropped_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    poster, before, hangs, began = Poster(), dropped(), threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        hangs.wait(HUNG_SECONDS)

    poster.queue.put(hang)
    for _ in range(3):
        poster.put()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(poster.queue.run)
        assert began.wait(HUNG_SECONDS)
        poster.queue.close()
        poster.put()  # by a reconcile that is still under way
        poster.queue.abandon()
        hangs.set()
        running.result(HUNG_SECONDS)
    assert poster.done == []
    assert dropped() == before + 4
    assert [record.getMessage() for record in caplog.records] == [
        "events dropped: 1, the last because: the process is stopping",
        "events dropped: 3, the last because: the process has no more time for them",
    ]


def test_nothing_is_logged_at_the_end_if_every_event_was_posted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    poster = Poster()
    poster.put()
    assert poster.drain() == [0]
    poster.queue.abandon()
    assert caplog.records == []
