"""One rank's part of a checkpoint: what it keeps of the state, and writes when rank 0 asks.

Nothing here makes a checkpoint: that takes the manifest, which rank 0 alone writes, last.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from rl_contracts.documents.base import Record
from rl_contracts.documents.manifest import FileEntry
from rl_contracts.stores.files import artifacts
from rl_contracts.stores.objects import Objects
from rl_policy_codec import state as codec
from rl_trainer.context import uploads
from rl_trainer.distributed.rank_commands import SnapshotState
from rl_trainer.model.files import safetensors_files
from rl_trainer.model.files.safetensors_files import FileContent
from rl_trainer.model.parallel.pieces import OwnPiece

FILE_BYTES = 1 << 30
INDEX_SUFFIX = ".index.json"
DIGESTS_AT_A_TIME = 4

Snapshot: TypeAlias = dict[str, OwnPiece]


class PieceEntry(Record):
    """A piece of a tensor, and where it lies."""

    tensor: str
    """As ``saved`` names it: behind its section."""
    shape: list[int]
    """Of the whole tensor."""
    dtype: str
    """By its safetensors name, e.g. ``F32``."""
    spans: list[list[tuple[int, int]]]
    """For each dimension the ranges [first, last) of the tensor's indices that the piece has."""
    file: str
    offset: int
    """Of its first byte in the file."""
    sha256: str
    """Of its bytes."""


class PartIndex(Record):
    """All pieces of a rank's part."""

    pieces: list[PieceEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePart:
    """Write a snapshot's part; respond with its files (``WrittenPart``)."""

    number: int
    """Of the snapshot, as ``SnapshotState`` named it."""
    prefix: str
    """Of the checkpoint's keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPart:
    """Response to ``WritePart``: the files that are in the bucket now."""

    files: list[FileEntry]


class PartWriter:
    """Holds this rank's snapshots until they are written or dropped.

    At most two, if who takes one drops the one that waited before: the one that is being written,
    and the one that waits.

    Args:
        objects: the run's bucket.
        rank: this one.
    """

    def __init__(self, objects: Objects, *, rank: int) -> None:
        self._objects, self._rank = objects, rank
        self._lock = threading.Lock()
        self._waiting: dict[int, Snapshot] = {}

    def take(self, command: SnapshotState, snapshot: Snapshot) -> None:
        """Hold a snapshot."""
        with self._lock:
            self._waiting[command.number] = snapshot

    def drop(self, command: SnapshotState) -> None:
        """Free the snapshot that will not be written, before the next one is copied."""
        with self._lock:
            self._waiting.pop(command.drop, None)

    @property
    def busy(self) -> bool:
        """Whether a snapshot waits for ``WritePart``."""
        with self._lock:
            return bool(self._waiting)

    def respond(self, request: WritePart) -> WrittenPart:
        """Write a snapshot and free it.

        Raises:
            RLError: the bucket did not take the files.
        """
        with self._lock:
            snapshot = self._waiting.pop(request.number)
        return WrittenPart(files=write(self._objects, request.prefix, snapshot, rank=self._rank))


def write(objects: Objects, prefix: str, snapshot: Snapshot, *, rank: int) -> list[FileEntry]:
    """Write a part's files straight from memory, then its index; returns their entries."""
    state = {name: safetensors_files.flat(piece.numbers) for name, piece in snapshot.items()}
    forms = {name: safetensors_files.form(piece.numbers) for name, piece in snapshot.items()}
    groups = safetensors_files.groups(forms, file_bytes=FILE_BYTES)
    stem = f"part-{rank:05d}"
    layouts = [
        safetensors_files.file_layout(f"{stem}-{number:05d}.safetensors", forms, members)
        for number, members in enumerate(groups)
    ]
    with ThreadPoolExecutor(DIGESTS_AT_A_TIME, thread_name_prefix="checkpoint-digest") as executor:
        digests = codec.start_digests(state, executor)
        contents = [(each.name, FileContent(each, state), each.size_bytes) for each in layouts]
        uploads.upload(objects, prefix, contents)
        pieces = [
            PieceEntry(
                tensor=name,
                shape=list(snapshot[name].shape),
                dtype=forms[name].dtype,
                spans=[list(ranges) for ranges in snapshot[name].spans],
                file=layout.name,
                offset=offset,
                sha256=digests[name].result(),
            )
            for layout in layouts
            for name, offset in layout.offsets(forms).items()
        ]
    index = PartIndex(pieces=pieces).model_dump_json().encode()
    entry = artifacts.entry(f"{stem}{INDEX_SUFFIX}", index)
    objects.put(prefix + entry.name, index)
    return [*(layout.entry for layout in layouts), entry]
