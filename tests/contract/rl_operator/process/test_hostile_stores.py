"""A tenant whose stores drip, hang or hold too much harms itself alone, and the blame is right."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import bson
import pytest
from bson.raw_bson import RawBSONDocument

from rl_contracts.reader import CheckRequest, RunsRequest
from rl_contracts.stores import overview
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_operator.kube import kinds
from rl_reader import work
from rl_reader.mounted import Folder
from rl_reader.runs import Runs
from tests.contract.rl_operator.processes import Starter, begins
from tests.contract.rl_operator.world import World, a_namespace
from tests.network.mongo_front import front_before
from tests.samples.documents import a_run, a_sampler
from tests.samples.manifests import a_job
from tests.waiting import until

S3_BEGIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: 9999999\r\n\r\n"
MONGO_BEGIN = struct.pack("<iiii", 9_999_999, 1, 1, 2013)
STORE_SECONDS = 1.0
ATTACKERS = 8
BAR_SECONDS = 30.0


@contextlib.contextmanager
def dripping(begin: bytes) -> Iterator[int]:
    """The port of a server that begins an answer and then sends a byte now and then for ever."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)

    def drip(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(begin)
            while not over.wait(0.1):
                connection.sendall(b"\0")

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=drip, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    over.set()
    listener.close()


def mounted(folder: Path, settings: StoreSettings, **changes: str) -> Folder:
    for key, value in (settings.to_mapping() | changes).items():
        (folder / key).write_text(value)
    return Folder(folder, namespace="ns", secret="stores")


def test_bucket_that_drips_is_not_blamed_on_the_state_store(
    stores: Stores, store_settings: StoreSettings, tmp_path: Path
) -> None:
    stores.runs.create(a_run(id="r"))
    with dripping(S3_BEGIN) as port:
        folder = mounted(tmp_path, store_settings, s3Endpoint=f"http://127.0.0.1:{port}")
        began = time.monotonic()
        answer = Runs(folder, store_seconds=5.0).answer(RunsRequest(runs=("r",)))
        assert time.monotonic() - began < BAR_SECONDS
    assert (answer.store.status, answer.runs["r"].starting) == ("True", False)
    assert answer.bucket.status == "True" or answer.bucket.reason == "StorageUnreachable"


def test_bucket_that_drips_holds_one_thread_however_often_it_is_asked(
    stores: Stores, store_settings: StoreSettings, tmp_path: Path
) -> None:
    with dripping(b"") as port:
        folder = mounted(tmp_path, store_settings, s3Endpoint=f"http://127.0.0.1:{port}")
        runs = Runs(folder, store_seconds=5.0)
        answers = [runs.answer(RunsRequest(runs=("r",))) for _ in range(4)]
        hanging = [thread for thread in threading.enumerate() if thread.name == "bucket"]
    assert {answer.bucket.reason for answer in answers} == {"StorageUnreachable"}
    assert len(hanging) == 1


def test_bucket_that_hangs_is_named(
    stores: Stores, store_settings: StoreSettings, tmp_path: Path
) -> None:
    with dripping(b"") as port:
        folder = mounted(tmp_path, store_settings, s3Endpoint=f"http://127.0.0.1:{port}")
        answer = Runs(folder, store_seconds=5.0).answer(RunsRequest(runs=("r",)))
    assert answer.store.status == "True"
    assert (answer.bucket.status, answer.bucket.reason) == ("False", "StorageUnreachable")


def test_state_store_that_drips_is_named(
    stores: Stores, store_settings: StoreSettings, tmp_path: Path
) -> None:
    with dripping(MONGO_BEGIN) as port:
        folder = mounted(tmp_path, store_settings, mongoUri=f"mongodb://127.0.0.1:{port}/")
        runs = Runs(folder, store_seconds=STORE_SECONDS)
        began = time.monotonic()
        answer = runs.answer(RunsRequest(runs=("r",)))
        assert time.monotonic() - began < BAR_SECONDS
    assert (answer.store.status, answer.store.reason) == ("False", "StateStoreUnreachable")
    assert (answer.bucket.status, answer.runs) == ("True", {})


LATE_DATE = b"\x09when\x00" + struct.pack("<q", 8_640_000_000_000_000)  # of the year 275760
NO_TEXT = b"\x02text\x00\x03\x00\x00\x00\xff\xfe\x00"


@pytest.mark.parametrize("strange", [LATE_DATE, NO_TEXT], ids=["a late date", "no UTF-8"])
def test_a_document_that_no_driver_of_ours_writes_harms_its_run_alone(
    stores: Stores, store_settings: StoreSettings, tmp_path: Path, strange: bytes
) -> None:
    stores.runs.create(a_run(id="good"))
    for collection, fields in (
        ("runs", {"_id": "bad"}),
        ("runs", {"_id": "beside"}),
        ("samplers", {"_id": "s", "run": "beside"}),
    ):
        body = bson.encode(fields)[4:-1] + strange
        raw = struct.pack("<i", len(body) + 5) + body + b"\0"
        stores.mongo.collection(collection).insert_one(RawBSONDocument(raw))
    runs = Runs(mounted(tmp_path, store_settings))
    answer = runs.answer(RunsRequest(runs=("good", "bad", "beside")))
    assert answer.store.status == "True"
    assert answer.runs.keys() == {"good", "bad", "beside"}
    assert answer.runs["good"].problem == ""
    assert json.loads(answer.runs["good"].documents)["run"]["_id"] == "good"


def test_run_with_too_many_registrations_is_refused_and_the_others_are_read(
    stores: Stores,
) -> None:
    for run, count in (("many", 12), ("few", 3)):
        stores.runs.create(a_run(id=run))
        stores.samplers.put(
            [a_sampler(str(each), id=f"{run}.sampler.{each}", run=run) for each in range(count)]
        )
    known = overview.read_runs(stores.mongo, ["many", "few"], most_samplers=10)
    assert "more than 10 registrations" in known["many"].problem
    assert known["many"].stored_samplers == ()
    assert (known["few"].problem, len(known["few"].stored_samplers)) == ("", 3)
    cut = overview.read_runs(stores.mongo, ["few"], most_bytes=1000)
    assert "larger than" in cut["few"].problem


def test_run_whose_registrations_take_long_is_refused_and_the_others_are_read(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "BATCH", 10)
    for run, count in (("crowd", 50), ("few", 9)):
        stores.runs.create(a_run(id=run))
        stores.samplers.put(
            [a_sampler(str(each), id=f"{run}.sampler.{each}", run=run) for each in range(count)]
        )
    known = overview.read_runs(stores.mongo, ["crowd", "few"], seconds=0.0)
    assert (
        "took longer than 0 s: the collection samplers has more than 10" in known["crowd"].problem
    )
    assert (known["few"].problem, len(known["few"].stored_samplers)) == ("", 9)
    assert not overview.read_runs(stores.mongo, ["crowd"])["crowd"].problem


def test_registrations_beyond_the_limit_are_not_read(
    stores: Stores, store_settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "BATCH", 10)
    counts = {"a": 3, "crowd": 400, "mob": 400, "z": 4}
    for run, count in counts.items():
        stores.runs.create(a_run(id=run))
        stores.samplers.put(
            [a_sampler(str(each), id=f"{run}.sampler.{each}", run=run) for each in range(count)]
        )
    uri = store_settings.mongo_uri.get_secret_value()
    with front_before(uri) as front:
        changed = store_settings.to_mapping() | {"mongoUri": f"mongodb://127.0.0.1:{front.port}/"}
        with closing(Mongo(StoreSettings.from_mapping(changed))) as mongo:
            known = overview.read_runs(mongo, list(counts), most_samplers=20)
    replies = len(front.of("getMore")) + sum(
        command["find"] == "samplers" for command in front.of("find")
    )
    assert replies <= 3 * 5, "all registrations are 81 replies"
    assert {run for run, each in known.items() if each.problem} == {"crowd", "mob"}
    assert [len(known[run].stored_samplers) for run in ("a", "z")] == [3, 4]


@pytest.mark.soak
def test_job_of_another_tenant_starts_while_eight_jobs_have_dripping_stores(
    world: World, start: Starter
) -> None:
    victim, hostile = world.namespace, a_namespace(world.apiserver)
    start("one")
    with dripping(S3_BEGIN) as s3, dripping(MONGO_BEGIN) as mongo:
        world.namespace = hostile
        world.make_secret(
            mongoUri=f"mongodb://127.0.0.1:{mongo}/", s3Endpoint=f"http://127.0.0.1:{s3}"
        )
        for number in range(ATTACKERS):
            world.make_job(f"hostile-{number}")
        until(
            lambda: all(job.get("status", {}).get("runId") for job in world.objects(kinds.RLJOB)),
            what="the hostile jobs to be reconciled",
        )
        world.namespace = victim
        world.make_secret()
        world.upload_inputs()
        began = time.monotonic()
        job = world.make_job()
        until(lambda: bool(world.objects(kinds.DEPLOYMENT)), what="the pool's Deployment")
        run = str(world.status(job)["runId"])
        world.start_samplers(run)
        until(lambda: begins(world, run), what="the trainer")
        took = time.monotonic() - began
        world.namespace = hostile
        reasons = {
            condition["reason"]
            for each in world.objects(kinds.RLJOB)
            for condition in each["status"]["conditions"]
            if condition["type"] in ("Stalled", "Ready")
        }
        world.clear()
        world.namespace = victim
    assert took < BAR_SECONDS
    assert reasons <= {
        "CheckingInputs",
        "StateStoreUnreachable",
        "BucketUnreachable",
        "ReaderNotAnswering",
    }


def test_check_that_never_ends_is_answered_at_once_as_not_done(
    store_settings: StoreSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(work, "ANSWER_SECONDS", 0.2)
    with dripping(MONGO_BEGIN) as port:
        folder = mounted(tmp_path, store_settings, mongoUri=f"mongodb://127.0.0.1:{port}/")
        checks = work.Checks(folder)
        request = CheckRequest(spec=a_job("job", namespace="ns")["spec"])
        assert not checks.answer(request).done
        monkeypatch.setattr(work, "CHECK_SECONDS", 0.0)
        late = checks.answer(request)
    assert late.done
    assert "took longer than" in late.refusals[0].message
