"""Readings of a namespace's runs, on the real document store."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from rl_contracts.errors import RLError
from rl_contracts.stores import overview
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.overview import Overview
from rl_operator.state.progress import REACHED, Reach
from rl_operator.stores import readings
from rl_operator.stores.connections import Connections, StoresOf
from rl_operator.stores.readings import ProgressReader
from tests.documents import a_run, a_sampler, a_task
from tests.waiting import HUNG_SECONDS, until

RUNS = [f"r{index}" for index in range(12)]


class BucketIsThere(Connections):
    """No Secret and no bucket take part."""

    def __init__(self) -> None:
        pass

    def bucket(self, stores: Stores, *, now: float) -> Reach:
        return REACHED


@pytest.fixture
def found(stores: Stores) -> StoresOf:
    stores.mongo.ensure_indexes()
    now = stores.mongo.now()
    for index, run in enumerate(RUNS):
        stores.runs.create(a_run(id=run, steps=index + 1))
        stores.tasks.insert([a_task(one, id=f"{run}.train.{one}", run=run) for one in range(index)])
        document = a_sampler(run, id=f"{run}.sampler.a", run=run, heartbeat_at=now)
        stores.samplers.put([document])
    return StoresOf(stores=stores, place="ns/secret@1")


@pytest.fixture
def reader() -> Iterator[ProgressReader]:
    made = ProgressReader(BucketIsThere(), clock=time.monotonic, fresh_seconds=3600.0)
    yield made
    made.close()


def test_one_read_serves_all_runs_of_a_namespace(
    reader: ProgressReader, found: StoresOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[tuple[str, ...]] = []
    ask = overview.read_runs

    def counted(mongo: Mongo, runs: Sequence[str]) -> dict[str, Overview]:
        reads.append(tuple(runs))
        if len(reads) == 2:  # under way until all have asked, however slowly threads start
            until(
                lambda: len(reader._namespaces[found.place].asked) == len(RUNS), what="all to ask"
            )
        return ask(mongo, runs)

    monkeypatch.setattr(overview, "read_runs", counted)
    monkeypatch.setattr(readings, "ANSWER_SECONDS", HUNG_SECONDS)
    reader.read(RUNS[0], found)
    with ThreadPoolExecutor(len(RUNS)) as threads:
        said = list(threads.map(lambda run: reader.read(run, found), RUNS))
    for index, reading in enumerate(said):
        assert reading.known
        assert reading.run is not None
        assert reading.run.steps == index + 1
        assert reading.backlog == index
        assert [sampler.run for sampler in reading.samplers] == [RUNS[index]]
    assert len(reads) == 3  # one alone, those who had asked when the next began, all
    assert set(reads[2]) == set(RUNS)
    for run in RUNS:
        reader.read(run, found)
    assert len(reads) == 3


def test_a_read_that_begins_anew_has_what_was_written_before_it(
    reader: ProgressReader, found: StoresOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a recent one nor one that is under way, and looked before, will do."""
    stores, ask = found.stores, overview.read_runs
    assert stores is not None
    looked, goes_on = Event(), Event()

    def slow(mongo: Mongo, runs: Sequence[str]) -> dict[str, Overview]:
        seen = ask(mongo, runs)
        looked.set()
        assert goes_on.wait(HUNG_SECONDS)
        return seen

    def steps(*, anew: bool) -> int:
        run = reader.read(RUNS[0], found, anew=anew).run
        return run.steps if run is not None else 0

    def write(count: int) -> None:
        stores.mongo.collection("runs").update_one({"_id": RUNS[0]}, {"$set": {"steps": count}})

    monkeypatch.setattr(readings, "ANSWER_SECONDS", HUNG_SECONDS)
    assert steps(anew=False) == 1
    write(77)
    assert [steps(anew=False), steps(anew=True)] == [1, 77]
    monkeypatch.setattr(overview, "read_runs", slow)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(steps, anew=True)
        assert looked.wait(HUNG_SECONDS)
        write(88)
        second = threads.submit(steps, anew=True)
        goes_on.set()
        assert [first.result(), second.result()] == [77, 88]


def test_a_document_that_cannot_be_read_concerns_its_own_run_alone(
    reader: ProgressReader, found: StoresOf
) -> None:
    assert found.stores is not None
    found.stores.mongo.collection("runs").update_one(
        {"_id": RUNS[3]}, {"$set": {"schema_version": 999}}
    )
    assert reader.read(RUNS[4], found).run is not None
    with pytest.raises(RLError):
        reader.read(RUNS[3], found)
    assert reader.read(RUNS[5], found).run is not None


def test_a_run_that_is_not_there_is_none(reader: ProgressReader, found: StoresOf) -> None:
    reading = reader.read("nobody", found)
    assert reading.known
    assert (reading.run, reading.samplers, reading.backlog) == (None, (), 0)
