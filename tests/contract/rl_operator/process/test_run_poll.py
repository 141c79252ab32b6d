"""Readings of a namespace's runs, on the real document store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from rl_contracts.errors import RLError
from rl_contracts.stores import overview
from rl_contracts.stores.clients.deployment import Deployment, warning
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.overview import Overview
from rl_operator.kube.kinds import Key
from rl_operator.state.progress import REACHED, Reading
from rl_operator.status.component_conditions import reachable
from rl_operator.stores import run_poll
from rl_operator.stores.reader_pods import Place
from rl_operator.stores.readers import Readers
from rl_operator.stores.run_poll import RunProgressPoller
from rl_reader.mounted import Folder, Mounted
from rl_reader.runs import Runs
from tests.samples.documents import a_run, a_sampler, a_task
from tests.waiting import HUNG_SECONDS, until

RUNS = [f"r{index}" for index in range(12)]


class StoresFolder(Folder):
    """The folder of a Secret that names the test's stores."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(Path("/nowhere"), namespace="ns", secret="secret")
        self.stores = stores

    def current(self) -> Mounted:
        return Mounted(version="1", stores=self.stores, bucket="b")


class OwnReader(Readers):
    """A reader in this process."""

    def __init__(self, stores: Stores) -> None:
        self.runs = Runs(StoresFolder(stores), store_seconds=HUNG_SECONDS)

    def ask(self, place: Place, path: str, body: Any, answer: Any) -> Any:
        return self.runs.answer(body)

    def note_version(self, place: Place, version: str, *, usable: bool) -> None:
        assert usable


@pytest.fixture
def run_stores(stores: Stores) -> Stores:
    stores.mongo.ensure_indexes()
    now = stores.mongo.now()
    for index, run in enumerate(RUNS):
        stores.runs.create(a_run(id=run, steps=index + 1))
        stores.tasks.insert(
            [a_task(number, id=f"{run}.train.{number}", run=run) for number in range(index)]
        )
        document = a_sampler(run, id=f"{run}.sampler.a", run=run, heartbeat_at=now)
        stores.samplers.put([document])
    return stores


class Reader:
    """Reads each run for a job of its own."""

    def __init__(self, run_stores: Stores) -> None:
        self.poller = RunProgressPoller(
            OwnReader(run_stores),
            enqueue=lambda _: None,
            clock=time.monotonic,
            seconds=3600.0,
        )

    def read(self, run: str, *, fresh: bool = False) -> Reading:
        return self.poller.read(Key("RLJob", "ns", run), run, "secret", fresh=fresh)


@pytest.fixture
def reader(run_stores: Stores) -> Iterator[Reader]:
    made = Reader(run_stores)
    yield made
    made.poller.close()


def test_one_read_serves_all_runs_of_a_namespace(
    reader: Reader, run_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[tuple[str, ...]] = []
    ask = overview.read_runs

    def counted(mongo: Mongo, runs: Sequence[str], *, seconds: float) -> dict[str, Overview]:
        reads.append(tuple(runs))
        if len(reads) == 2:  # under way until all have asked, however slowly threads start
            until(
                lambda: len(reader.poller._namespaces[("ns", "secret")].runs) == len(RUNS),
                what="all to ask",
            )
        return ask(mongo, runs, seconds=seconds)

    monkeypatch.setattr(overview, "read_runs", counted)
    monkeypatch.setattr(run_poll, "ANSWER_SECONDS", HUNG_SECONDS)
    reader.read(RUNS[0])
    with ThreadPoolExecutor(len(RUNS)) as threads:
        readings = list(threads.map(lambda run: reader.read(run), RUNS))
    for index, reading in enumerate(readings):
        assert reading.known
        assert reading.run is not None
        assert reading.run.steps == index + 1
        assert reading.backlog == index
        assert [sampler.run for sampler in reading.samplers] == [RUNS[index]]
    assert len(reads) == 3  # one alone, those asked for when the next began, the others
    assert set().union(*reads) == set(RUNS)
    for run in RUNS:
        reader.read(run)
    assert len(reads) == 3


def test_fresh_read_has_what_was_written_before_it(
    reader: Reader, run_stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a recent one nor one that is under way, and looked before, will do."""
    stores, ask = run_stores, overview.read_runs
    has_read, goes_on = Event(), Event()

    def slow(mongo: Mongo, runs: Sequence[str], *, seconds: float) -> dict[str, Overview]:
        seen = ask(mongo, runs, seconds=seconds)
        has_read.set()
        assert goes_on.wait(HUNG_SECONDS)
        return seen

    def steps(*, fresh: bool) -> int:
        run = reader.read(RUNS[0], fresh=fresh).run
        return run.steps if run is not None else 0

    def write(count: int) -> None:
        stores.mongo.collection("runs").update_one({"_id": RUNS[0]}, {"$set": {"steps": count}})

    monkeypatch.setattr(run_poll, "ANSWER_SECONDS", HUNG_SECONDS)
    assert steps(fresh=False) == 1
    write(77)
    assert [steps(fresh=False), steps(fresh=True)] == [1, 77]
    monkeypatch.setattr(overview, "read_runs", slow)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(steps, fresh=True)
        assert has_read.wait(HUNG_SECONDS)
        write(88)
        second = threads.submit(steps, fresh=True)
        goes_on.set()
        assert [first.result(), second.result()] == [77, 88]


def test_unreadable_document_affects_only_its_own_run(reader: Reader, run_stores: Stores) -> None:
    run_stores.mongo.collection("runs").update_one(
        {"_id": RUNS[3]}, {"$set": {"schema_version": 999}}
    )
    assert reader.read(RUNS[4]).run is not None
    with pytest.raises(RLError):
        reader.read(RUNS[3])
    assert reader.read(RUNS[5]).run is not None


@pytest.mark.parametrize("kind", Deployment)
def test_a_store_that_can_lose_its_runs_is_reached_with_a_warning(
    reader: Reader, run_stores: Stores, monkeypatch: pytest.MonkeyPatch, kind: Deployment
) -> None:
    monkeypatch.setattr(Mongo, "deployment", lambda _: kind)
    reading = reader.read(RUNS[0])
    assert reading.known
    warned = warning(kind)
    if warned is None:
        assert reading.store == REACHED
        return
    condition = reachable("StateStoreReachable", reading.store)
    assert (condition.status, condition.reason) == ("True", kind.value)
    assert condition.message == warned.message


def test_unknown_run_reads_as_none(reader: Reader, run_stores: Stores) -> None:
    reading = reader.read("nobody")
    assert reading.known
    assert (reading.run, reading.samplers, reading.backlog) == (None, (), 0)
