"""Downloads of large objects: verified as they come, and taken up where they were cut short.

Several segments are downloaded at a time, each in order by one thread, which compares the digests
of the tensors in it: the digest of a file is known when its last byte is.
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

from rl_contracts.disk import DiskFullError
from rl_contracts.documents.manifest import Manifest
from rl_contracts.errors import IntegrityError, RLError
from rl_sampler.policy.route import Remote
from rl_sampler.policy.source import Source
from rl_sampler.policy.spans import Proof, Span, segments, spans_of

PART_BYTES = 16 << 20
"""Of a segment, downloaded with one request and then noted in the journal."""
SEGMENT_BYTES = 16 << 20
"""A segment has at least so many; more where one tensor has more."""
READ_BYTES = 1 << 20
PARTS_AT_A_TIME = 4
JOURNAL = ".parts"


class StagingEndedError(RLError):
    """Nobody waits for this policy any more."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """Neighbouring spans of one file."""

    key: str
    path: Path
    spans: tuple[Span, ...]

    @property
    def size_bytes(self) -> int:
        return self.spans[-1].end - self.spans[0].begin

    def parts(self) -> Iterator[tuple[int, int]]:
        """Offset and size of what is downloaded with one request."""
        end = self.spans[-1].end
        for offset in range(self.spans[0].begin, end, PART_BYTES):
            yield offset, min(PART_BYTES, end - offset)


class Downloads:
    """What is downloaded into one folder; a journal there tells which parts have come.

    The journal is a hint and no proof: what it tells of is read and compared like what comes.
    """

    def __init__(self, source: Source, folder: Path, *, ended: threading.Event) -> None:
        """Begin, or go on with, a folder's downloads.

        Args:
            source: the bucket, or a peer before it.
            folder: where to.
            ended: set when nobody wants the result any more.
        """
        self._source, self._ended = source, ended
        self._journal = folder / JOURNAL
        self._lock = threading.Lock()
        self._come = (
            set(self._journal.read_text().splitlines()) if self._journal.is_file() else set()
        )

    def fetch(self, wanted: Mapping[Path, Remote], *, manifest: Manifest | None) -> None:
        """Download objects to these paths.

        Args:
            wanted: what, and where to.
            manifest: that of the policy whose tensors lie in these files; their digests are
                compared. None: only those of whole files.

        Raises:
            DiskFullError: there is no room for them.
            IntegrityError: an object is shorter than its manifest says, or something in it has
                another digest.
            ObjectMissingError: one is not there.
            StagingEndedError: ``ended`` was set.
            StoreUnavailableError: the bucket does not answer; what has come is kept.
        """
        for path, remote in wanted.items():
            _allocate(path, remote.entry.size_bytes)
        found = [
            _Segment(remote.key, path, tuple(spans))
            for path, remote in wanted.items()
            for spans in segments(spans_of(remote.entry, manifest), size_bytes=SEGMENT_BYTES)
        ]
        # The largest first, so that none is left over in the end.
        found.sort(key=lambda one: -one.size_bytes)
        with ThreadPoolExecutor(PARTS_AT_A_TIME, thread_name_prefix="download") as pool:
            jobs = [pool.submit(self._fetch, one) for one in found]
            try:
                for job in jobs:
                    job.result()
            finally:
                for job in jobs:
                    job.cancel()

    def _fetch(self, segment: _Segment) -> None:
        proof = Proof(segment.path.name, segment.spans)
        with segment.path.open("r+b", buffering=0) as file:
            for offset, size in segment.parts():
                if self._ended.is_set():
                    raise StagingEndedError(f"downloading {segment.key} was given up")
                note = f"{offset} {size} {segment.path.name}"
                file.seek(offset)
                if note in self._come:
                    _read(file, size, proof.update)
                    continue

                def take(chunk: bytes) -> None:
                    _write(file, chunk)
                    proof.update(chunk)

                self._source.read_range(segment.key, offset=offset, size_bytes=size, consume=take)
                with self._lock, self._journal.open("a") as journal:
                    journal.write(f"{note}\n")

    def close(self) -> None:
        """Remove the journal; everything has come."""
        self._journal.unlink(missing_ok=True)


def _read(file: FileIO, size: int, consume: Callable[[bytes], None]) -> None:
    while size:
        chunk = file.read(min(READ_BYTES, size))
        if not chunk:
            raise IntegrityError(f"{file.name} ends before what its journal tells of")
        size -= len(chunk)
        consume(chunk)


def _write(file: FileIO, chunk: bytes) -> None:
    try:
        view = memoryview(chunk)
        while view:
            view = view[file.write(view) :]
    except OSError as error:  # the bucket is not to blame
        raise DiskFullError(f"writing {file.name}: {error}") from error


def _allocate(path: Path, size_bytes: int) -> None:
    """Make a file of this length, its room reserved."""
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
        raise DiskFullError(f"no room for {path.name} of {size_bytes} bytes") from error
