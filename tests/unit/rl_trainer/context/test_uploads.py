from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any, cast

import pytest

from rl_contracts.errors import StoreUnavailableError
from rl_contracts.stores.clients.multipart import Source
from rl_trainer.context import uploads
from rl_trainer.context.heartbeat import Heartbeat
from rl_trainer.context.uploads import Uploader
from rl_trainer.errors import TerminatedError
from tests.waiting import HUNG_SECONDS


class Quiet:
    """A heartbeat whose trainer is not told to stop until it is."""

    def __init__(self) -> None:
        self.stopped = False

    def check(self) -> None:
        if self.stopped:
            raise TerminatedError


class Bucket:
    """Takes items one at a time, each only when it is let through."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)

    def upload(self, item: int) -> None:
        self.begun.release()
        assert self.let.acquire(timeout=HUNG_SECONDS)
        if item < 0:
            raise ValueError(f"item {item}")
        self.taken.append(item)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def uploader(bucket: Bucket) -> Iterator[Uploader[int]]:
    made: Uploader[int] = Uploader(bucket.upload, name="test")
    yield made
    bucket.let.release(10)
    made.close(wait=True)


def quiet() -> Heartbeat:
    return cast("Heartbeat", Quiet())


def test_a_newer_upload_replaces_the_waiting_one(bucket: Bucket, uploader: Uploader[int]) -> None:
    uploader.submit(1)
    assert bucket.begun.acquire(timeout=HUNG_SECONDS)
    for item in (2, 3, 4):
        uploader.submit(item)
    bucket.let.release(2)
    uploader.flush(quiet())
    assert bucket.taken == [1, 4]


def test_an_upload_error_is_raised_once(bucket: Bucket, uploader: Uploader[int]) -> None:
    uploader.submit(-1)
    assert bucket.begun.acquire(timeout=HUNG_SECONDS)
    uploader.submit(-2)
    bucket.let.release(2)
    with pytest.raises(ValueError, match="item -1"):
        uploader.flush(quiet())
    with pytest.raises(ValueError, match="item -2"):
        uploader.flush(quiet())
    bucket.let.release()
    uploader.submit(3)
    uploader.flush(quiet())
    assert bucket.taken == [3]


def test_a_flush_ends_on_sigterm(bucket: Bucket, uploader: Uploader[int]) -> None:
    uploader.submit(1)
    heartbeat: Any = Quiet()
    heartbeat.stopped = True
    with pytest.raises(TerminatedError):
        uploader.flush(heartbeat)


class Away:
    """Takes some files and no more: the ones that are being written then fail together."""

    def __init__(self, *, takes: int) -> None:
        self._takes, self._lock = takes, threading.Lock()
        self.begun: list[str] = []
        self.waited = threading.Barrier(uploads.FILES_AT_A_TIME)

    def put_parts(self, key: str, source: Source, *, size_bytes: int, executor: Executor) -> None:
        with self._lock:
            self.begun.append(key)
            taken = len(self.begun) <= self._takes
        if not taken:
            self.waited.wait(HUNG_SECONDS)
            raise StoreUnavailableError(store="bucket", doing=f"writing {key}", cause="away")


def test_a_bucket_that_is_away_costs_one_wait_and_not_one_for_each_file() -> None:
    bucket = Away(takes=3)
    wanted: list[tuple[str, Source, int]] = [
        (f"{number:02d}", lambda _, __: [], 0) for number in range(20)
    ]
    with pytest.raises(StoreUnavailableError, match="writing a/"):
        uploads.upload(bucket, "a/", wanted)
    assert len(bucket.begun) == 3 + uploads.FILES_AT_A_TIME


def test_a_part_that_is_sent_again_is_no_progress() -> None:
    class Retrying:
        def put_parts(
            self, key: str, source: Source, *, size_bytes: int, executor: Executor
        ) -> None:
            for offset in (0, 4, 4, 0, 8):
                assert bytes(source(offset, 4)[0]) == content[offset : offset + 4]

    content, advanced = b"abcdefghijkl", list[int]()
    watched = uploads.WatchedFiles(Retrying(), lambda: advanced.append(1))
    uploads.upload(
        watched,
        "p/",
        [
            (name, lambda offset, size: [memoryview(content)[offset : offset + size]], len(content))
            for name in ("a", "b")
        ],
    )
    assert len(advanced) == 6, "three parts of two files"
