"""The bucket goes away in the middle of a publication and of a download."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from rl_contracts.errors import StoreUnavailableError
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.objects import Objects
from rl_sampler.policy import fetch
from rl_trainer.model.files.safetensors_files import FileContent
from rl_trainer.publish import policy_shard
from tests.contract.policy_broadcast.world import Line, Subscriber, content
from tests.servers import MinioServer, StoreServer, running_minio, settings_of
from tests.waiting import HUNG_SECONDS


@pytest.fixture
def minio(tmp_path: Path) -> Iterator[MinioServer]:
    with running_minio(tmp_path) as started:
        yield started


@pytest.fixture
def settings(minio: MinioServer, store_server: StoreServer) -> StoreSettings:
    return settings_of(store_server, minio)


def bucket(settings: StoreSettings, *, patience_seconds: float) -> Objects:
    made = Objects(settings, patience_seconds=patience_seconds)
    made.make_bucket()
    return made


def large() -> dict[str, torch.Tensor]:
    """Three parts of a multipart upload."""
    generator = torch.Generator().manual_seed(0)
    return {"w": torch.randn(20 << 20, generator=generator)}


class Outage:
    """Kills the server once, and starts it again beside the caller."""

    def __init__(self, minio: MinioServer) -> None:
        self._minio, self._lock = minio, threading.Lock()
        self.begun = False
        self._pool = ThreadPoolExecutor(1)

    def __call__(self) -> None:
        with self._lock:
            if self.begun:
                return
            self.begun = True
            self._minio.server.kill()
            self._back = self._pool.submit(self._minio.server.start)

    def over(self) -> None:
        self._back.result(timeout=HUNG_SECONDS)
        self._pool.shutdown()


@pytest.mark.soak
def test_a_publication_survives_a_restart(
    minio: MinioServer, settings: StoreSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, outage = Line(bucket(settings, patience_seconds=HUNG_SECONDS)), Outage(minio)

    class Interrupted(FileContent):
        read_bytes = 0

        def __call__(self, offset: int, size_bytes: int) -> list[memoryview]:
            self.read_bytes += size_bytes
            if self.read_bytes > 40 << 20:
                outage()
            return super().__call__(offset, size_bytes)

    monkeypatch.setattr(policy_shard, "FileContent", Interrupted)
    pointer = line.publish(large())
    outage.over()
    subscriber = Subscriber.make(tmp_path / "weights", line.objects, large())
    assert content(subscriber.stage(pointer)) == line.states[1]


def test_a_download_survives_a_restart_and_repeats_no_part(
    minio: MinioServer, settings: StoreSettings, tmp_path: Path
) -> None:
    line, outage = Line(bucket(settings, patience_seconds=HUNG_SECONDS)), Outage(minio)
    pointer = line.publish(large())
    subscriber = Subscriber.make(tmp_path / "weights", line.objects, large())
    received = after(subscriber, parts=2, then=outage)
    assert content(subscriber.stage(pointer)) == line.states[1]
    outage.over()
    assert sum(received) == line.manifest(1).full_bytes


@pytest.mark.soak
def test_a_long_outage_costs_only_the_missing_parts(
    minio: MinioServer, settings: StoreSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PARTS_AT_A_TIME", 1)
    line = Line(bucket(settings, patience_seconds=HUNG_SECONDS))
    pointer = line.publish(large())
    taken = bucket(settings, patience_seconds=HUNG_SECONDS)
    subscriber = Subscriber.make(tmp_path / "weights", taken, large())

    def kill() -> None:
        taken._patience = 0.5
        minio.server.kill()

    received = after(subscriber, parts=2, then=kill)
    with pytest.raises(StoreUnavailableError):
        subscriber.stage(pointer)
    assert all(name.endswith(".partial") for name in subscriber.names)
    minio.server.start()
    taken._patience = HUNG_SECONDS
    assert content(subscriber.stage(pointer)) == line.states[1]
    assert sum(received) == line.manifest(1).full_bytes


def test_an_interrupted_range_resumes_at_the_next_byte(
    minio: MinioServer, settings: StoreSettings
) -> None:
    objects, outage = bucket(settings, patience_seconds=HUNG_SECONDS), Outage(minio)
    data, come = random.Random(0).randbytes(40 << 20), bytearray()
    objects.put("one", data)

    def consume(chunk: bytes) -> None:
        come.extend(chunk)
        if len(come) > 10 << 20:
            outage()

    objects.read_range("one", offset=1000, size_bytes=len(data) - 2000, consume=consume)
    outage.over()
    assert come == data[1000:-1000]


@pytest.mark.soak
def test_an_upload_unknown_to_the_bucket_restarts(
    minio: MinioServer, settings: StoreSettings
) -> None:
    objects = bucket(settings, patience_seconds=HUNG_SECONDS)
    data, asked = random.Random(0).randbytes(80 << 20), []

    def source(offset: int, size_bytes: int) -> list[memoryview]:
        asked.append(offset)
        if len(asked) == 3:
            pending = objects._client._list_multipart_uploads(objects.bucket, prefix="one")
            for upload in pending.uploads:
                assert upload.upload_id is not None
                objects._client._abort_multipart_upload(objects.bucket, "one", upload.upload_id)
        return [memoryview(data)[offset : offset + size_bytes]]

    with ThreadPoolExecutor(1) as pool:
        objects.put_parts("one", source, size_bytes=len(data), executor=pool)
    assert objects.get("one") == data
    assert len(asked) == 6, "all three parts were sent again"


def after(subscriber: Subscriber, *, parts: int, then: Callable[[], None]) -> list[int]:
    """Do something once so many parts have come; the list of those that came."""

    class Noted(list[int]):
        def append(self, size: int) -> None:
            super().append(size)
            if len(self) == parts:
                then()

    received = Noted()
    subscriber.bucket.received = received
    return received
