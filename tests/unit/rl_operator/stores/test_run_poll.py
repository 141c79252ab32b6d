"""Runs are polled by namespace; objects are enqueued when their run changes."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from rl_operator.kube.kinds import Key
from rl_operator.state.progress import REACHED
from rl_operator.stores import run_answers, run_poll
from rl_operator.stores.run_poll import INTEREST_SECONDS
from tests.unit.rl_operator.stores.polled_world import SECRET, World, a_key
from tests.waiting import HUNG_SECONDS, until


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.answers.set()
    made.poller.close()


def test_changed_run_enqueues_the_objects_that_read_it(world: World) -> None:
    for run in ("a", "b"):
        world.trains(run)
        world.read(run)
    world.poller.read(a_key("pool"), "a", SECRET)
    world.trains("a", step=3)
    assert world.poll(5) == ["job-a", "pool"]
    assert world.read("a").run.step == 3
    assert world.poll(5) == []


def test_heartbeats_enqueue_nothing(world: World) -> None:
    world.trains("a")
    world.read("a")
    world.trains("a", heartbeat_at=world.now + 5)
    assert world.poll(5) == []


def test_one_read_serves_all_runs_of_a_namespace(world: World) -> None:
    for run in ("a", "b", "c"):
        world.trains(run)
        world.read(run)
    world.reads.clear()
    world.poll(5)
    assert world.reads == [{"a", "b", "c"}]


def test_outage_enqueues_every_reader_as_it_begins_and_as_it_ends(world: World) -> None:
    for run in ("a", "b"):
        world.trains(run)
        world.read(run)
    world.down = True
    assert world.poll(5) == ["job-a", "job-b"]
    assert world.read("a").store.reason == "StateStoreUnreachable"
    assert world.poll(5) == []
    world.down = False
    assert world.poll(5) == ["job-a", "job-b"]
    assert world.read("a").known


def test_runs_that_no_trainer_has_taken_are_polled_more_often(world: World) -> None:
    world.trains("a")
    world.read("a")
    world.read("new")
    world.reads.clear()
    world.poll(2)
    assert world.reads == [{"new"}]
    world.trains("new")
    assert world.poll(2) == ["job-new"]  # "a", which is due soon, is read along
    assert world.reads[1:] == [{"a", "new"}]
    world.poll(2)
    assert len(world.reads) == 2


def test_many_runs_are_polled_more_rarely(world: World) -> None:
    runs = [f"r{number}" for number in range(2500)]
    for run in runs:
        world.trains(run)
    world.read(runs[0])
    for run in runs[1:]:
        world.poller._note_interest(a_key(f"job-{run}"), run, ("ns", SECRET))
    world.read(runs[-1])
    world.poll(9)
    world.reads.clear()
    assert not world.reads
    world.poll(2)
    assert len(world.reads) == 1


def test_latest_reading_is_returned_while_a_read_hangs(world: World) -> None:
    world.trains("a")
    assert world.read("a").known
    world.answers.clear()
    world.now += 5
    world.poller.poll()
    until(lambda: len(world.reads) == 2, what="the read")
    assert world.read("a").known


def test_read_that_takes_too_long_is_an_outage_and_its_answer_is_news(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_poll, "ANSWER_SECONDS", 0.0)
    world.trains("a")
    world.answers.clear()
    reading = world.read("a")
    assert (reading.store.status, reading.store.reason) == ("False", "StateStoreUnreachable")
    assert reading.store.message.startswith("No answer in time. Check that the server runs and")
    assert not world.woken
    world.answers.set()
    world.finish()
    assert world.woken == ["job-a"]
    assert world.read("a").known


def test_fresh_read_begins_after_it_was_asked_for(world: World) -> None:
    world.trains("a", step=1)
    assert world.read("a").run.step == 1
    world.trains("a", step=2)
    assert world.read("a").run.step == 1
    assert world.read("a", fresh=True).run.step == 2


def test_forgotten_objects_are_enqueued_no_more(world: World) -> None:
    for run in ("a", "b"):
        world.trains(run)
        world.read(run)
    world.poller.forget(a_key("job-a"))
    world.trains("a", step=3)
    world.reads.clear()
    assert world.poll(5) == []
    assert world.reads == [{"b"}]
    world.poller.forget(a_key("job-b"))
    world.poller.forget(a_key("job-b"))
    assert not world.poller._namespaces
    assert not world.poller._places


def test_read_that_ends_after_its_namespace_was_dropped_changes_nothing(world: World) -> None:
    world.trains("a")
    world.read("a")
    (dropped,) = world.poller._namespaces.values()
    world.poller.forget(a_key("job-a"))
    world.read("a")
    (namespace,) = world.poller._namespaces.values()
    answer, under_way = namespace.runs["a"].answer, Future[None]()
    namespace.pending = under_way
    world.poller._read(("ns", SECRET), dropped, ("a",))
    assert namespace.pending is under_way
    assert namespace.runs["a"].answer is answer
    namespace.pending = None


def test_job_whose_reader_starts_is_enqueued_as_soon_as_it_answers(world: World) -> None:
    world.trains("a")
    world.starting = True
    reading = world.read("a")
    assert (reading.store.status, reading.store.reason) == ("Unknown", "ReaderStarting")
    assert world.poll(2) == []
    world.starting = False
    assert world.poll(2) == ["job-a"]
    assert world.read("a").known


def test_runs_that_do_not_fit_into_an_answer_are_read_by_the_next_poll(world: World) -> None:
    for run in ("a", "b", "c"):
        world.trains(run)
        world.read(run)
    world.fitting = 2
    for run in ("a", "b", "c"):
        world.trains(run, step=3)
    assert world.poll(5) == ["job-a", "job-b"]
    assert world.poll(1) == ["job-c"]


def test_runs_that_do_not_fit_are_read_as_often_as_the_others(world: World) -> None:
    runs = [str(number) for number in range(8)]
    for run in runs:
        world.trains(run)
        world.read(run)
    world.fitting = 1
    world.reads.clear()
    for _ in range(80):
        world.poll(1)
    first = Counter(world.first_of_reads)
    assert set(first) == set(runs)
    assert max(first.values()) - min(first.values()) <= 2


def test_documents_beyond_the_memory_of_a_secret_are_not_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in ("a", "b"):
        world.trains(run, notes="x" * 1000)
    known = world.read("a")
    size = world.poller._namespaces["ns", SECRET].runs["a"].answer
    assert size is not None
    monkeypatch.setattr(run_answers, "HELD_BYTES", size.held_bytes + 500)
    refused = world.read("b")
    assert known.run is not None
    assert (refused.store.status, refused.store.reason, refused.run) == ("False", "Refused", None)
    assert "are larger than" in refused.store.message
    assert world.read("a", fresh=True).run is not None


def test_a_store_that_did_not_answer_holds_further_jobs_up_for_half_a_second(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    world.down = True
    world.read("a")
    world.poller._namespaces["ns", SECRET].slow = True
    world.answers.clear()
    result = Future.result

    def noted(future: Future[None], timeout: float | None = None) -> None:
        waits.append(timeout or 0.0)
        return result(future, 0.0)

    monkeypatch.setattr(Future, "result", noted)
    world.read("b")
    world.read("c", fresh=True)
    world.answers.set()
    assert waits == [pytest.approx(0.5), pytest.approx(8.0)]


def test_slow_namespaces_have_at_most_half_of_the_threads(world: World) -> None:
    for number in range(40):
        place = Key("RLJob", f"ns{number}", "job")
        world.poller.read(place, "a", SECRET)
    for namespace in world.poller._namespaces.values():
        namespace.slow = True
    world.poller.read(a_key("job-b"), "b", SECRET)
    world.reads.clear()
    world.answers.clear()
    world.now += 5
    world.poller.poll()
    until(lambda: len(world.reads) == 17, what="16 slow namespaces and one other")
    world.poller.poll()
    pending = [place.pending for place in world.poller._namespaces.values()]
    assert sum(future is not None for future in pending) == 17


def test_stores_that_refuse_have_their_secret_refreshed(world: World) -> None:
    world.read("a")
    world.secret_version = 0
    world.poll(5)
    assert world.usable == [True, False]


def test_run_whose_reader_has_gone_on_without_an_answer_is_read_by_the_next_poll(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_poll, "ANSWER_SECONDS", 0.0)
    world.trains("a")
    world.trains("b")
    world.answers.clear()
    world.read("a")
    world.read("b")  # the read under way is of "a" alone
    world.answers.set()
    world.finish()
    assert world.poll() == ["job-b"]
    assert world.read("b").known


def test_poll_that_fails_is_logged_and_the_next_one_follows(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    polls = threading.Semaphore(0)

    def fails() -> None:
        polls.release()
        raise ZeroDivisionError

    monkeypatch.setattr(run_poll, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(world.poller, "poll", fails)
    world.poller.start()
    assert polls.acquire(timeout=HUNG_SECONDS)
    assert polls.acquire(timeout=HUNG_SECONDS)
    assert "polling the runs failed" in caplog.text


def test_run_that_nobody_asks_for_any_more_is_not_polled(world: World) -> None:
    world.trains("a")
    world.read("a")
    world.reads.clear()
    world.poll(INTEREST_SECONDS + 1)
    assert world.reads == []
    assert not world.poller._namespaces


def test_changed_secret_is_read_with_its_new_stores(world: World) -> None:
    world.trains("a")
    world.read("a")
    world.secret_version = 2
    assert world.poll(5) == ["job-a"]


def test_secret_that_goes_and_comes_back_enqueues_its_readers(world: World) -> None:
    world.trains("a")
    world.read("a")
    world.secret_version = 0
    assert world.poll(5) == ["job-a"]
    assert world.read("a").store.reason == "StoresSecretMissing"
    world.secret_version = 2
    assert world.poll(5) == ["job-a"]
    assert world.read("a").known


def test_object_whose_spec_names_another_secret_leaves_the_first(world: World) -> None:
    world.trains("a")
    world.read("a")
    world.poller.read(a_key("job-a"), "a", "other")
    assert list(world.poller._namespaces) == [("ns", "other")]


def test_unexpected_failure_is_logged_and_read_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.trains("a")
    world.read("a")
    world.error = "a defect"
    world.poll(5)
    world.error = ""
    world.trains("a", step=9)
    assert world.poll(1) == ["job-a"]
    assert "reading runs of namespace ns, Secret stores failed" in caplog.text


def test_failure_reaches_the_reconcile_that_waits_for_it(world: World) -> None:
    world.trains("a")
    world.error = "a defect"
    with pytest.raises(ZeroDivisionError):
        world.read("a")
    world.error = ""
    assert world.read("a").known


def test_document_that_cannot_be_read_concerns_its_own_run(world: World) -> None:
    world.trains("a", steps="many")
    world.trains("b")
    with pytest.raises(Exception, match="steps"):
        world.read("a")
    assert world.read("b").known


def test_open_tasks_are_counted_again_after_a_while_if_somebody_asks(world: World) -> None:
    world.open_tasks = itertools.count(1)
    world.trains("a")
    assert [world.read("a").backlog, world.read("a").backlog] == [1, 1]
    world.poll(5)
    assert world.read("a").backlog == 2
    world.poll(5)
    world.poll(5)
    assert world.read("a").backlog == 3


def test_readers_in_other_namespaces_are_apart(world: World) -> None:
    world.trains("a")
    world.read("a")
    world.poller.read(a_key("job", "other"), "a", SECRET)
    assert len(world.poller._namespaces) == 2
    assert dataclasses.asdict(world.read("a").store) == dataclasses.asdict(REACHED)
