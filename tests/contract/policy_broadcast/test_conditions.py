"""What goes wrong around a publication ends in the right version or an error that names it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import minio.time
import pytest
from minio.credentials.providers import StaticProvider
from minio.minioadmin import MinioAdmin

from rl_contracts.errors import (
    AccessDeniedError,
    FencedOutError,
    IntegrityError,
    ObjectMissingError,
    StoreUnavailableError,
)
from rl_contracts.stores.clients.multipart import PART_BYTES
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.policy_broadcast.publishing import RUN, Trainer
from tests.contract.policy_broadcast.world import Line, Subscriber, content, moved, strange
from tests.servers import MinioServer, StoreServer, running_minio, settings_of
from tests.waiting import HUNG_SECONDS, until

ROOM = 1 << 30
LITTLE = 4096
"""Less than the tiny model has; a write as large as the whole quota is refused at once."""


@pytest.fixture
def own_minio(tmp_path: Path) -> Iterator[MinioServer]:
    """A server that the test may kill."""
    with running_minio(tmp_path) as started:
        yield started


@pytest.fixture
def limited(store_server: StoreServer, minio_server: MinioServer) -> StoreSettings:
    """Settings with a bucket that no other test uses, so that it may get a quota."""
    bucket = f"limited-{secrets.token_hex(4)}"
    return settings_of(store_server, minio_server, bucket=bucket)


def limit(server: MinioServer, settings: StoreSettings, size: int) -> None:
    """Set the bucket's hard quota."""
    keys = StaticProvider(server.access_key, server.secret_key)
    host = server.endpoint.removeprefix("http://")
    admin = MinioAdmin(endpoint=host, credentials=keys, secure=False)
    admin.bucket_quota_set(settings.s3_bucket, size)


@contextmanager
def connected(settings: StoreSettings, *, patience_seconds: float) -> Iterator[Stores]:
    """Stores that are there, with so much patience for a bucket that takes nothing."""
    with closing(Stores.connect(settings, patience_seconds=HUNG_SECONDS)) as stores:
        stores.mongo.ensure_indexes()
        stores.objects.make_bucket()
        stores.objects._patience = patience_seconds
        yield stores


def test_a_full_bucket_costs_versions_but_no_step(
    minio_server: MinioServer, limited: StoreSettings, tmp_path: Path
) -> None:
    with connected(limited, patience_seconds=HUNG_SECONDS) as stores:
        trainer = Trainer.start(stores, tmp_path)
        trainer.publisher.require(step=1)
        limit(minio_server, limited, LITTLE)
        for step in (2, 3, 4):
            wanted = trainer.step()
            trainer.publisher.submit(step=step)  # returns although nothing can be written
        assert trainer.pointer.step == 1, "samplers keep what they have"
        limit(minio_server, limited, ROOM)
        pointer = trainer.publisher.require(step=4)
        trainer.publisher.close(wait=True)
        staged = trainer.subscriber(tmp_path / "weights").stage(pointer)
        assert content(staged) == wanted
        assert trainer.pointer == pointer


def test_a_publication_that_fails_is_retried_and_no_step_waits_for_it(
    own_minio: MinioServer, store_server: StoreServer, tmp_path: Path
) -> None:
    """The bucket is gone while steps are made: handing one over takes a copy and nothing else."""
    with connected(settings_of(store_server, own_minio), patience_seconds=HUNG_SECONDS) as stores:
        trainer = Trainer.start(stores, tmp_path)
        trainer.publisher.require(step=1)
        own_minio.server.kill()
        wanted = {1: trainer.content}
        copies = []
        for step in range(2, 7):
            wanted[step] = trainer.step()
            trainer.publisher.submit(step=step)  # returns although there is no bucket
            copies.append(held(trainer))
            if step == 2:
                until(lambda: trainer.run.last_version == 2, what="step 2 to be in work")
        assert max(copies) <= 3, "the last one published, the one in work, the one that waits"
        assert trainer.pointer.step == 1, "samplers keep what they have"
        own_minio.server.start()
        pointer = trainer.publisher.require(step=6)
        trainer.publisher.close(wait=True)
        subscriber = trainer.subscriber(tmp_path / "weights")
        assert content(subscriber.stage(pointer)) == wanted[6]
        published = {policy.step: policy for policy in stores.policies.of_run(RUN)}
        assert sorted(published) == [1, 2, 6], (
            "2 was tried until it was there, 6 replaced the others"
        )


def held(trainer: Trainer) -> int:
    """Copies of the weights in memory."""
    shards = trainer.publisher._shards
    base = None if shards._base is None else shards._base[1]
    others = {id(shard) for shard in (shards._current_shard, base) if shard is not None}
    return len(shards._waiting) + len(others)


@pytest.mark.parametrize("size", [1 << 16, PART_BYTES + 1])
def test_a_bucket_that_stays_full_is_named_with_a_remedy(
    minio_server: MinioServer, limited: StoreSettings, size: int
) -> None:
    """Whether the object is sent in a single request or in parts."""
    with connected(limited, patience_seconds=0.5) as stores, ThreadPoolExecutor(1) as pool:
        limit(minio_server, limited, LITTLE)
        data = memoryview(bytes(size))
        with pytest.raises(StoreUnavailableError, match=r"Quota.*The bucket is full") as caught:
            stores.objects.put_parts(
                "one", lambda at, count: [data[at : at + count]], size_bytes=size, executor=pool
            )
        assert caught.value.store == "bucket"
        assert stores.objects.list("one") == []


def test_a_trainer_raises_when_its_bucket_stays_full(
    minio_server: MinioServer, limited: StoreSettings, tmp_path: Path
) -> None:
    with connected(limited, patience_seconds=0.5) as stores:
        trainer = Trainer.start(stores, tmp_path)
        limit(minio_server, limited, LITTLE)
        with pytest.raises(StoreUnavailableError, match="The bucket is full"):
            trainer.publisher.require(step=1)
        trainer.publisher.close(wait=True)
        assert trainer.run.policy is None


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_clock_that_is_off_by_minutes_changes_nothing(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    skew(monkeypatch, minutes=minutes)
    trainer = Trainer.start(stores, tmp_path)
    for step in (1, 2, 3):
        wanted = trainer.step()
        pointer = trainer.publisher.require(step=step)
    trainer.publisher.close(wait=True)
    staged = trainer.subscriber(tmp_path / "weights").stage(pointer)
    assert content(staged) == wanted
    store_now = stores.mongo.now()
    records = stores.policies.of_run(RUN)
    assert {record.version for record in records} == {1, 2, 3}
    assert all(record.published_at <= store_now for record in records), "times are the store's"


@pytest.mark.parametrize("minutes", [-60, 60])
def test_a_clock_skew_that_the_bucket_refuses_is_named(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    trainer = Trainer.start(stores, tmp_path)
    first = trainer.publisher.require(step=1)
    subscriber = trainer.subscriber(tmp_path / "weights")
    skew(monkeypatch, minutes=minutes)
    trainer.step()
    with pytest.raises(AccessDeniedError, match="Check the clocks"):
        trainer.publisher.require(step=2)
    with pytest.raises(AccessDeniedError, match="Check the clocks"):
        subscriber.stage(first)
    monkeypatch.undo()
    assert trainer.pointer == first
    next_one = trainer.publisher.require(step=3)
    trainer.publisher.close(wait=True)
    assert content(subscriber.stage(next_one)) == trainer.content


def skew(monkeypatch: pytest.MonkeyPatch, *, minutes: float) -> None:
    """Set this program's clock off the bucket's."""
    true, off = minio.time.utcnow, timedelta(minutes=minutes)

    def skewed() -> datetime:
        return true() + off

    monkeypatch.setattr(minio.time, "utcnow", skewed)


def test_samplers_follow_the_newer_of_two_publishers(stores: Stores, tmp_path: Path) -> None:
    """The older one is in the middle of a publication when it is fenced out."""
    old = Trainer.start(stores, tmp_path)
    old.publisher.require(step=1)
    old.step()
    old.publisher.submit(step=2)
    new = Trainer.start(stores, tmp_path)
    wanted = new.step()
    pointer = new.publisher.require(step=1)
    with pytest.raises(FencedOutError):
        old.publisher.require(step=3)
    old.publisher.close(wait=True)
    new.publisher.close(wait=True)
    assert new.pointer == pointer
    assert (pointer.epoch, pointer.version > 1) == (stores.runs.require(RUN).epoch, True)
    subscriber = new.subscriber(tmp_path / "weights")
    assert content(subscriber.stage(new.pointer)) == wanted
    manifests = [
        stored_object.key
        for stored_object in stores.objects.list(stores.run_prefix(RUN))
        if "manifest" in stored_object.key
    ]
    assert len({key.split("policies/")[1].split("-")[0] for key in manifests}) == len(manifests)


def test_a_policy_without_manifest_is_never_published(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer.start(stores, tmp_path)
    first = trainer.publisher.require(step=1)
    trainer.step()
    with monkeypatch.context() as patch:

        def put(key: str, data: bytes) -> None:
            assert key.endswith("manifest.json")
            raise StoreUnavailableError(store="bucket", doing=f"writing {key}", cause="cut")

        patch.setattr(stores.objects, "put", put)
        with pytest.raises(StoreUnavailableError, match="cut"):
            trainer.publisher.require(step=2)
    torn = stores.objects.list(f"{stores.run_prefix(RUN)}policies/00000002-")
    assert torn, "its files lie there"
    assert not any(file.key.endswith("manifest.json") for file in torn)
    assert trainer.pointer == first
    wanted = trainer.step()
    third = trainer.publisher.require(step=3)
    trainer.publisher.close(wait=True)
    assert third.version == 3, "a number is never used twice"
    assert content(trainer.subscriber(tmp_path / "weights").stage(third)) == wanted


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_truncated_manifest_is_refused(stores: Stores, tmp_path: Path, share: float) -> None:
    line = Line(stores.objects)
    subscriber = Subscriber.make(tmp_path / "weights", stores.objects, strange())
    first = subscriber.stage(line.publish(strange()))
    line.publish(moved(strange(), seed=1))
    pointer = line.pointers[2]
    key = pointer.prefix + "manifest.json"
    whole = stores.objects.get(key)
    stores.objects.put(key, whole[: int(share * len(whole))])
    with pytest.raises(IntegrityError, match="manifest has digest"):
        subscriber.stage(pointer, keep=[first.folder])
    assert subscriber.names == [first.folder.name], "what is served stays"
    stores.objects.put(key, whole)
    assert content(subscriber.stage(pointer, keep=[first.folder])) == line.states[2]


def test_a_pointer_is_staged_once_its_objects_arrive(stores: Stores, tmp_path: Path) -> None:
    line = Line(stores.objects)
    subscriber = Subscriber.make(tmp_path / "weights", stores.objects, strange())
    first = subscriber.stage(line.publish(strange()))
    line.publish(moved(strange(), seed=1))
    pointer = line.pointers[2]
    objects = {
        stored_object.key: stores.objects.get(stored_object.key)
        for stored_object in stores.objects.list(pointer.prefix)
    }
    stores.objects.delete_prefix(pointer.prefix)
    for key in sorted(objects, key=lambda stored: "manifest" in stored):
        with pytest.raises(ObjectMissingError):
            subscriber.stage(pointer, keep=[first.folder])
        stores.objects.put(key, objects[key])
    assert content(subscriber.stage(pointer, keep=[first.folder])) == line.states[2]
