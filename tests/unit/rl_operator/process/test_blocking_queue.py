"""Worker threads that wait on the queue miss nothing, and no key has two of them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager

import pytest

from rl_operator.process.blocking_queue import BlockingWorkQueue
from rl_operator.process.work_queue import WorkQueue
from tests.waiting import HUNG_SECONDS, throughout, until


def a_blocking_queue() -> BlockingWorkQueue[str]:
    return BlockingWorkQueue(
        WorkQueue(clock=time.monotonic, jitter=lambda: 0.0), clock=time.monotonic
    )


class Counting(WorkQueue[str]):
    """Counts how often somebody asks for a key."""

    asked = 0

    def take(self) -> str | None:
        self.asked += 1
        return super().take()


@contextmanager
def threads_of(queue: BlockingWorkQueue[str], count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that wait on a queue; they go at the end, also when what they are for has failed."""
    with ThreadPoolExecutor(count) as threads:
        try:
            yield threads
        finally:
            queue.close()


def test_workers_wake_for_keys_and_for_time() -> None:
    queue = a_blocking_queue()
    with threads_of(queue, 3) as threads:
        taken = [threads.submit(queue.take) for _ in range(3)]
        queue.add_after("later", 0.05)
        queue.add("now")
        queue.add("also")
        found = [one.result(HUNG_SECONDS) for one in taken]
        assert sorted(filter(None, found)) == ["also", "later", "now"]
        queue.done("now", again_after=0.01)
        assert threads.submit(queue.take).result(HUNG_SECONDS) == "now"
        assert queue.failed("now") == 0.5


def test_workers_of_a_closed_queue_go() -> None:
    queue = a_blocking_queue()
    with threads_of(queue, 3) as threads:
        taken = [threads.submit(queue.take) for _ in range(3)]
        queue.add_after("later", 100)
        queue.close()
        assert [one.result(HUNG_SECONDS) for one in taken] == [None] * 3
    queue.add("now")
    assert queue.take() is None  # nothing is begun any more
    assert len(queue) == 1


def test_many_workers_take_every_key_and_never_one_at_a_time() -> None:
    queue, keys = a_blocking_queue(), [str(index) for index in range(20)]
    at_work = {key: threading.Lock() for key in keys}
    done = threading.Semaphore(0)

    def work() -> None:
        while (key := queue.take()) is not None:
            assert at_work[key].acquire(blocking=False)
            at_work[key].release()  # here, for from ``done`` on another one may have it
            queue.done(key, again_after=None)
            done.release()

    with threads_of(queue, 8) as threads:
        workers = [threads.submit(work) for _ in range(8)]
        for key in keys:
            queue.add(key)
        for _ in keys:
            assert done.acquire(timeout=HUNG_SECONDS)
        for key in keys * 10:  # while they are worked on
            queue.add(key)
        while queue.busy:
            assert done.acquire(timeout=HUNG_SECONDS)
        queue.close()
        for worker in workers:
            worker.result(HUNG_SECONDS)


def test_hardly_anybody_wakes_for_nothing() -> None:
    counting = Counting(clock=time.monotonic, jitter=lambda: 0.0)
    queue = BlockingWorkQueue(counting, clock=time.monotonic)
    queue.add_after("later", 0.3)
    with threads_of(queue, 8) as threads:
        taken = {threads.submit(queue.take) for _ in range(8)}
        until(lambda: counting.asked >= 8, what="all of them to wait")
        queue.add_after("much later", 1000)
        queue.add("may wait", within=900)
        (first,), _ = wait(taken, HUNG_SECONDS, return_when=FIRST_COMPLETED)
        assert first.result() == "later"
        # Who has found the key has woken, and has called one who watches in its place.
        throughout(lambda: "" if counting.asked <= 10 else f"{counting.asked} asked", seconds=0.3)


@pytest.mark.parametrize("seed", range(5))
def test_no_key_is_missed_whenever_it_is_due(seed: int) -> None:
    queue, chance = a_blocking_queue(), random.Random(seed)
    keys = [str(index) for index in range(300)]
    found: list[str] = []

    def work() -> None:
        while (key := queue.take()) is not None:
            found.append(key)
            queue.done(key, again_after=None)

    with threads_of(queue, 8) as threads:
        for _ in range(8):
            threads.submit(work)
        for key in keys:
            match chance.randrange(3):
                case 0:
                    queue.add(key)
                case 1:
                    queue.add(key, within=chance.random() / 20)
                case _:
                    queue.add_after(key, chance.random() / 20)
        until(lambda: len(found) == len(keys), what="all of them")
    assert sorted(found) == sorted(keys)
