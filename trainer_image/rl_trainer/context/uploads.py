"""Uploads beside training: one at a time, in order, the newest of what waits; and its files."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from typing import Generic, Protocol, TypeVar

from rl_contracts.errors import RLError
from rl_contracts.stores.clients.multipart import Source
from rl_trainer.context.heartbeat import Heartbeat

log = logging.getLogger(__name__)

T = TypeVar("T")
POLL_SECONDS = 0.05
FILES_AT_A_TIME = 2
PARTS_AT_A_TIME = 3


class Uploader(Generic[T]):
    """Hands items to ``upload`` on a thread of its own.

    It holds at most two items: the one being uploaded, and one that waits. A newer item replaces
    the waiting one. So a slow bucket costs versions, never training time, and memory is bounded.
    """

    def __init__(self, upload: Callable[[T], None], *, name: str) -> None:
        self._upload = upload
        self._name = name
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: T | None = None
        self._jobs: list[Future[None]] = []

    def submit(self, item: T) -> None:
        """Take an item; raises the error of an earlier upload."""
        self.check()
        with self._lock:
            replaced, self._waiting = self._waiting, item
        if replaced is None:
            self._jobs.append(self._executor.submit(self._work))
        else:
            log.warning("%s: a newer upload replaced one that was waiting", self._name)

    def withdraw(self) -> T | None:
        """Take back the waiting item, so that memory does not hold it beside its successor."""
        with self._lock:
            waiting, self._waiting = self._waiting, None
        return waiting

    def check(self) -> None:
        """Raise the error of an upload that failed."""
        for job in [job for job in self._jobs if job.done()]:
            self._jobs.remove(job)
            job.result()

    def flush(self, heartbeat: Heartbeat) -> None:
        """Wait until nothing waits and nothing is being uploaded.

        Bounded by the stores' patience with each request; raises the error of a failed upload,
        and what ``heartbeat.check`` raises.
        """
        while self._jobs:
            concurrent.futures.wait(self._jobs, timeout=POLL_SECONDS)
            self.check()
            heartbeat.check()

    def complete(self) -> None:
        """Wait until nothing waits and nothing is being uploaded, even after SIGTERM.

        Raises the error of an upload that failed.
        """
        while self._jobs:
            self._jobs.pop(0).result()

    def close(self, *, wait: bool) -> None:
        """Stop the thread; what waits is dropped."""
        self._executor.shutdown(wait=wait, cancel_futures=True)

    def _work(self) -> None:
        with self._lock:
            item, self._waiting = self._waiting, None
        if item is not None:
            self._upload(item)


class PartFiles(Protocol):
    """Where files are written from memory: a bucket, or a folder."""

    def put_parts(self, key: str, source: Source, *, size_bytes: int, executor: Executor) -> None:
        """Write a file, as ``Objects.put_parts``."""


class WatchedFiles:
    """Writes files, and calls ``advanced`` for each part that is begun for the first time.

    Few parts are sent at a time, so a new one shows that an earlier one has arrived. A part that is
    sent again shows nothing.
    """

    def __init__(self, files: PartFiles, advanced: Callable[[], None]) -> None:
        self._files, self._advanced = files, advanced

    def put_parts(self, key: str, source: Source, *, size_bytes: int, executor: Executor) -> None:
        """Write a file, as ``Objects.put_parts``."""
        begun = set[int]()

        def watched(offset: int, size: int) -> Sequence[memoryview]:
            if offset not in begun:
                begun.add(offset)
                self._advanced()
            return source(offset, size)

        self._files.put_parts(key, watched, size_bytes=size_bytes, executor=executor)


def upload(files: PartFiles, prefix: str, wanted: Sequence[tuple[str, Source, int]]) -> None:
    """Write files of these names, contents and sizes, a few at a time.

    Raises the first error, and begins no file after it: while a bucket is away each would wait for
    it as long as the one before.
    """
    failed = threading.Event()

    def send(name: str, source: Source, size_bytes: int) -> None:
        if failed.is_set():
            return
        try:
            files.put_parts(prefix + name, source, size_bytes=size_bytes, executor=parts)
        except RLError:
            failed.set()
            raise

    with (
        ThreadPoolExecutor(PARTS_AT_A_TIME, thread_name_prefix="upload-part") as parts,
        ThreadPoolExecutor(FILES_AT_A_TIME, thread_name_prefix="upload") as senders,
    ):
        jobs = [senders.submit(send, *file) for file in wanted]
        wait(jobs)
    for job in jobs:
        job.result()
