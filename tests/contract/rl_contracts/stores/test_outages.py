"""Stores that stop, refuse and come back: patience, named errors, nothing lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rl_contracts.errors import (
    AccessDeniedError,
    IntegrityError,
    ObjectMissingError,
    StoreUnavailableError,
)
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.samples.documents import RUN, a_run, a_task
from tests.servers import (
    MinioServer,
    Server,
    StoreServer,
    running_minio,
    running_store,
    settings_of,
)
from tests.waiting import HUNG_SECONDS


@contextmanager
def connected(
    store: StoreServer, minio: MinioServer, *, patience_seconds: float
) -> Iterator[Stores]:
    stores = Stores.connect(settings_of(store, minio), patience_seconds=patience_seconds)
    with closing(stores):
        yield stores


@contextmanager
def outage(server: Server) -> Iterator[None]:
    """The server is dead at first and comes back after a second."""
    server.kill()
    restart = threading.Timer(1.0, server.start)
    restart.start()
    try:
        yield
    finally:
        restart.join()


def test_a_killed_document_store_keeps_every_acknowledged_write(
    tmp_path: Path, minio_server: MinioServer
) -> None:
    with (
        running_store(tmp_path) as mine,
        connected(mine, minio_server, patience_seconds=HUNG_SECONDS) as stores,
    ):
        stores.runs.create(a_run())
        stores.tasks.insert([a_task(i) for i in range(20)])
        with outage(mine.server):
            assert stores.runs.take_epoch(RUN).epoch >= 1  # waits through the outage
        assert len(stores.tasks.get([a_task(i).id for i in range(20)])) == 20


def test_a_store_that_stays_away_is_named_after_our_patience(
    tmp_path: Path, minio_server: MinioServer
) -> None:
    with (
        running_store(tmp_path) as mine,
        connected(mine, minio_server, patience_seconds=0.5) as stores,
    ):
        mine.server.kill()
        with pytest.raises(StoreUnavailableError, match="did not answer while reading run run1"):
            stores.runs.get(RUN)


def test_a_bucket_that_comes_back_is_used_again(tmp_path: Path, store_server: StoreServer) -> None:
    with (
        running_minio(tmp_path) as mine,
        connected(store_server, mine, patience_seconds=HUNG_SECONDS) as stores,
    ):
        stores.objects.make_bucket()
        stores.objects.put("a/b", b"kept")
        with outage(mine.server):
            assert stores.objects.get("a/b") == b"kept"


def test_wrong_keys_are_refused_at_once(store_settings: StoreSettings, stores: Stores) -> None:
    wrong = StoreSettings.from_mapping(
        {
            "mongoUri": store_settings.mongo_uri.get_secret_value(),
            "mongoDatabase": store_settings.mongo_database,
            "s3Endpoint": store_settings.s3_endpoint,
            "s3Bucket": store_settings.s3_bucket,
            "s3AccessKey": "tester",
            "s3SecretKey": "not-the-secret",
        }
    )
    with (
        closing(Stores.connect(wrong, patience_seconds=30)) as other,
        pytest.raises(AccessDeniedError) as refused,
    ):
        other.objects.check()
    assert "not-the-secret" not in str(refused.value)


@pytest.mark.parametrize("bucket", ["rl-data", "elsewhere"])
def test_what_is_missing_is_named(stores: Stores, bucket: str) -> None:
    with pytest.raises(ObjectMissingError, match=f"s3://{bucket}"):
        stores.objects.of_bucket(bucket).get("no/such/key")


def test_a_file_with_another_digest_never_gets_its_name(stores: Stores, tmp_path: Path) -> None:
    stores.objects.put("x/file", b"flipped")
    with pytest.raises(IntegrityError, match="digest"):
        stores.objects.get_file("x/file", tmp_path / "file", sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_deleting_a_prefix_spares_its_longer_sibling(stores: Stores) -> None:
    mine = stores.objects.prefix
    for key in ("runs/a/x", "runs/a/y/z", "runs/ab/x"):
        stores.objects.put(mine + key, b"1")
    assert stores.objects.delete_prefix(f"{mine}runs/a/") == 2
    assert [stored_object.key for stored_object in stores.objects.list(mine)] == [
        f"{mine}runs/ab/x"
    ]
