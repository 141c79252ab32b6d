"""Downloads large objects: verified while they are read, and resumed after an interruption.

Several segments are downloaded at a time. Each segment is read in order by a thread, which compares
the digests of its tensors. So a file's digests are checked as soon as its last byte is read.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Protocol

from rl_contracts.disk import DiskFullError
from rl_contracts.documents.manifest import Manifest
from rl_contracts.errors import IntegrityError, RLError
from rl_sampler.policy.route import RemoteFile
from rl_sampler.policy.spans import DigestChecker, Span, segments, spans_of


class Source(Protocol):
    """Reads objects of policies: the bucket, or a peer with the bucket behind it."""

    def get(self, key: str) -> bytes:
        """A whole object; raises ObjectMissingError, StoreUnavailableError."""

    def read_range(
        self, key: str, *, offset: int, size_bytes: int, consume: Callable[[bytes], None]
    ) -> None:
        """Pass the bytes of a range to ``consume``, in order and each once.

        Raises:
            IntegrityError: the object ends before the range.
            ObjectMissingError: the object does not exist.
            StoreUnavailableError: the bucket does not answer.
        """


PART_BYTES = 16 << 20
"""Of a segment: downloaded with one request and then recorded in the journal."""
SEGMENT_BYTES = 16 << 20
"""Least size of a segment; a segment is larger where a tensor is."""
READ_BYTES = 1 << 20
PARTS_AT_A_TIME = 4
JOURNAL = ".parts"


class StagingCancelledError(RLError):
    """Staging was cancelled, because its result is no longer wanted."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """Adjacent spans of a file."""

    key: str
    path: Path
    spans: tuple[Span, ...]

    @property
    def size_bytes(self) -> int:
        return self.spans[-1].end - self.spans[0].begin

    def parts(self) -> Iterator[tuple[int, int]]:
        """Offset and size of each request."""
        end = self.spans[-1].end
        for offset in range(self.spans[0].begin, end, PART_BYTES):
            yield offset, min(PART_BYTES, end - offset)


class Downloads:
    """Downloads to a folder, with a journal of the parts that were downloaded.

    The journal is only a hint: parts that it names are read and compared like new ones.
    """

    def __init__(self, source: Source, folder: Path, *, cancelled: threading.Event) -> None:
        """Start a folder's downloads, or resume them.

        Args:
            source: the bucket, or a peer with the bucket behind it.
            folder: the target.
            cancelled: set when the result is no longer wanted.
        """
        self._source, self._cancelled = source, cancelled
        self._journal = folder / JOURNAL
        self._lock = threading.Lock()
        self._downloaded = (
            set(self._journal.read_text().splitlines()) if self._journal.is_file() else set()
        )

    def fetch(self, wanted: Mapping[Path, RemoteFile], *, manifest: Manifest | None) -> None:
        """Download objects.

        Args:
            wanted: the objects by target path.
            manifest: of the policy whose tensors are in these files; the tensors' digests are
                compared. None to compare only digests of whole files.

        Raises:
            DiskFullError: the disk has no room for the objects.
            IntegrityError: an object is shorter than its manifest says, or a digest differs.
            ObjectMissingError: an object does not exist.
            StagingCancelledError: ``cancelled`` was set.
            StoreUnavailableError: the bucket does not answer; downloaded parts are kept.
        """
        for path, remote in wanted.items():
            _allocate(path, remote.entry.size_bytes)
        queue = [
            _Segment(remote.key, path, tuple(spans))
            for path, remote in wanted.items()
            for spans in segments(spans_of(remote.entry, manifest), size_bytes=SEGMENT_BYTES)
        ]
        # Largest first, so that no thread is left with a large segment at the end.
        queue.sort(key=lambda segment: -segment.size_bytes)
        with ThreadPoolExecutor(PARTS_AT_A_TIME, thread_name_prefix="download") as pool:
            jobs = [pool.submit(self._fetch, segment) for segment in queue]
            try:
                for job in jobs:
                    job.result()
            finally:
                for job in jobs:
                    job.cancel()

    def _fetch(self, segment: _Segment) -> None:
        checker = DigestChecker(segment.path.name, segment.spans)
        with segment.path.open("r+b", buffering=0) as file:
            for offset, size in segment.parts():
                if self._cancelled.is_set():
                    raise StagingCancelledError(f"downloading {segment.key} was cancelled")
                entry = f"{offset} {size} {segment.path.name}"
                file.seek(offset)
                if entry in self._downloaded:
                    _read(file, size, checker.update)
                    continue

                def take(chunk: bytes) -> None:
                    _write(file, chunk)
                    checker.update(chunk)

                self._source.read_range(segment.key, offset=offset, size_bytes=size, consume=take)
                with self._lock, self._journal.open("a") as journal:
                    journal.write(f"{entry}\n")

    def close(self) -> None:
        """Remove the journal, because everything was downloaded."""
        self._journal.unlink(missing_ok=True)


def _read(file: FileIO, size: int, consume: Callable[[bytes], None]) -> None:
    while size:
        chunk = file.read(min(READ_BYTES, size))
        if not chunk:
            raise IntegrityError(f"{file.name} is shorter than its journal says")
        size -= len(chunk)
        consume(chunk)


def _write(file: FileIO, chunk: bytes) -> None:
    try:
        view = memoryview(chunk)
        while view:
            view = view[file.write(view) :]
    except OSError as error:  # a failure of the disk, not of the bucket
        raise DiskFullError(f"writing {file.name}: {error}") from error


def _allocate(path: Path, size_bytes: int) -> None:
    """Make a file of this size and reserve its blocks on the disk."""
    if path.is_file() and path.stat().st_size == size_bytes:
        return
    if size_bytes < 0:
        raise IntegrityError(f"{path.name} cannot have {size_bytes} bytes")
    try:
        with path.open("wb") as file:
            if size_bytes:
                os.posix_fallocate(file.fileno(), 0, size_bytes)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise DiskFullError(
            f"the disk has no room for {path.name} of {size_bytes} bytes"
        ) from error
