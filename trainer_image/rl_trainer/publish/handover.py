"""Policies for the engine of the same pod: files in its weights folder instead of objects.

The agent links what lies there into its own folder and removes it here (``rl_contracts.turns``).
Nothing of it is durable: a later attempt publishes its own policy from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rl_contracts.disk import DiskFullError
from rl_contracts.stores.clients.multipart import Source
from rl_contracts.stores.objects import Objects, ObjectStat
from rl_contracts.turns import HANDOVER, folder_name

PART_BYTES = 32 << 20


class PolicyFiles(Protocol):
    """Where the files of policies are written: the bucket (``Objects``) or a folder."""

    def put(self, key: str, data: bytes) -> None:
        """Write a small file."""

    def put_parts(self, key: str, source: Source, *, size_bytes: int, executor: Executor) -> None:
        """Write a file straight from memory, as ``Objects.put_parts``."""

    def list(self, prefix: str) -> list[ObjectStat]:
        """The files below a prefix."""


class FolderFiles:
    """The weights folder of the engine in this pod."""

    def __init__(self, weights: Path) -> None:
        self._root = weights / HANDOVER

    def put(self, key: str, data: bytes) -> None:
        """Write a file, which gets its name once it is complete."""
        path = self._path(key)
        fresh = path.with_name(f"{path.name}.new")
        with _explaining(path):
            fresh.write_bytes(data)
            fresh.replace(path)

    def put_parts(self, key: str, source: Source, *, size_bytes: int, executor: Executor) -> None:
        """Write a file part by part; nothing is gained by writing parts side by side."""
        path = self._path(key)
        with _explaining(path), path.open("wb") as file:
            for offset in range(0, size_bytes, PART_BYTES):
                file.writelines(source(offset, min(PART_BYTES, size_bytes - offset)))

    def list(self, prefix: str) -> list[ObjectStat]:
        """The files of a policy."""
        folder = self._root / folder_name(prefix)
        return [
            ObjectStat(key=prefix + path.name, size_bytes=path.stat().st_size, etag="")
            for path in sorted(folder.iterdir())
        ]

    def _path(self, key: str) -> Path:
        prefix, _, name = key.rpartition("/")
        path = self._root / folder_name(prefix) / name
        with _explaining(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        return path


def policy_files(objects: Objects, weights: Path | None) -> PolicyFiles:
    """Where policies are published: the engine's folder in this pod, else the bucket."""
    return objects if weights is None else FolderFiles(weights)


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskFullError(f"writing {path.name} for the engine: {error}") from error
