"""Downloads of large objects: in ranges, several at a time, taken up where they were cut short."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rl_contracts.errors import IntegrityError, RLError
from rl_contracts.stores.objects import Objects
from rl_sampler.policy.route import Remote

PART_BYTES = 16 << 20
PARTS_AT_A_TIME = 4
JOURNAL = ".parts"


class DiskFullError(RLError):
    """The weights folder cannot hold another policy."""


class StagingEndedError(RLError):
    """Nobody waits for this policy any more."""


@dataclass(frozen=True, slots=True)
class _Part:
    key: str
    path: Path
    offset: int
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.offset} {self.size_bytes} {self.path.name}"


class Downloads:
    """What is downloaded into one folder; a journal there tells which parts have come.

    The journal is a hint and no proof: digests are checked over the whole once it is there.
    """

    def __init__(self, objects: Objects, folder: Path, *, ended: threading.Event) -> None:
        """Begin, or go on with, a folder's downloads.

        Args:
            objects: the bucket.
            folder: where to.
            ended: set when nobody wants the result any more.
        """
        self._objects, self._ended = objects, ended
        self._journal = folder / JOURNAL
        self._lock = threading.Lock()
        self._come = (
            set(self._journal.read_text().splitlines()) if self._journal.is_file() else set()
        )

    def fetch(self, wanted: Mapping[Path, Remote]) -> None:
        """Download objects to these paths.

        Raises:
            DiskFullError: there is no room for them.
            IntegrityError: an object is shorter than its manifest says.
            ObjectMissingError: one is not there.
            StagingEndedError: ``ended`` was set.
            StoreUnavailableError: the bucket does not answer; what has come is kept.
        """
        for path, remote in wanted.items():
            _allocate(path, remote.entry.size_bytes)
        parts = [
            part
            for path, remote in wanted.items()
            for part in _parts(remote, path)
            if str(part) not in self._come
        ]
        with ThreadPoolExecutor(PARTS_AT_A_TIME, thread_name_prefix="download") as pool:
            jobs = [pool.submit(self._fetch, part) for part in parts]
            try:
                for job in jobs:
                    job.result()
            finally:
                for job in jobs:
                    job.cancel()

    def _fetch(self, part: _Part) -> None:
        if self._ended.is_set():
            raise StagingEndedError(f"downloading {part.key} was given up")
        buffer = memoryview(bytearray(part.size_bytes))
        self._objects.get_range(part.key, buffer, offset=part.offset)
        with part.path.open("r+b") as file:
            file.seek(part.offset)
            file.write(buffer)
        with self._lock, self._journal.open("a") as journal:
            journal.write(f"{part}\n")

    def close(self) -> None:
        """Remove the journal; everything has come."""
        self._journal.unlink(missing_ok=True)


def _parts(remote: Remote, path: Path) -> list[_Part]:
    size = remote.entry.size_bytes
    return [
        _Part(remote.key, path, offset, min(PART_BYTES, size - offset))
        for offset in range(0, size, PART_BYTES)
    ]


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
