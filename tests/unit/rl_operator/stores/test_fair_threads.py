"""A namespace whose reader hangs holds one thread, and no reconcile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rl_contracts.reader import DeleteAnswer
from rl_operator.kube.kinds import Key
from rl_operator.stores import deletions
from rl_operator.stores.deletions import Deletions
from rl_operator.stores.fair_threads import FairThreads
from rl_operator.stores.reader_pods import Place
from rl_operator.stores.readers import Readers
from tests.waiting import HUNG_SECONDS, until


class HangingReaders(Readers):
    """The reader of one namespace hangs, all others delete at once."""

    def __init__(self) -> None:
        self.over, self.asked = threading.Event(), list[Place]()

    def ask(self, place: Place, path: str, body: Any, answer: Any) -> Any:
        self.asked.append(place)
        if place[0] == "hung":
            assert self.over.wait(HUNG_SECONDS)
        return DeleteAnswer(done=True)


@pytest.fixture
def readers() -> Iterator[HangingReaders]:
    made = HangingReaders()
    yield made
    made.over.set()


def test_eight_deletions_on_a_hung_store_leave_reconciling_alive(
    readers: HangingReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "WAIT_SECONDS", 0.01)
    enqueued: list[str] = []
    made = Deletions(readers, enqueue=lambda key: enqueued.append(key.name))
    jobs = [Key("RLJob", "hung", f"job-{number}") for number in range(8)]
    for job in jobs:
        assert made.proceed(job, "stores", job.name) == deletions.Deleted()
    assert len(readers.asked) == 1, "one thread for the namespace"
    monkeypatch.setattr(deletions, "WAIT_SECONDS", HUNG_SECONDS)
    assert made.proceed(Key("RLJob", "other", "job"), "stores", "r").done
    readers.over.set()
    until(lambda: len(enqueued) >= 8, what="the jobs to be enqueued")
    assert all(made.proceed(job, "stores", job.name).done for job in jobs)
    made.close()


def test_calls_of_a_namespace_run_one_after_the_other_and_those_of_others_beside_them() -> None:
    threads, release, order = FairThreads(2, name="test"), threading.Event(), list[str]()

    def held() -> None:
        assert release.wait(HUNG_SECONDS)
        order.append("first")

    first = threads.submit("a", held)
    second = threads.submit("a", lambda: order.append("second"))
    threads.submit("b", lambda: order.append("other")).result(HUNG_SECONDS)
    assert order == ["other"]
    release.set()
    second.result(HUNG_SECONDS)
    assert (first.done(), order) == (True, ["other", "first", "second"])
    threads.close()


def test_call_that_fails_does_not_keep_those_behind_it() -> None:
    threads = FairThreads(1, name="test")

    def fails() -> None:
        raise ZeroDivisionError

    failed = threads.submit("a", fails)
    assert threads.submit("a", lambda: 7).result(HUNG_SECONDS) == 7
    with pytest.raises(ZeroDivisionError):
        failed.result(0)
    threads.close()
