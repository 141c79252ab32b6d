"""One rank's shard of a policy: whole tensors, encoded and uploaded by the rank that holds them.

Rank 0 sends requests, and every rank, rank 0 included, responds for its own tensors. Nothing here
makes a policy visible: that takes the manifest, which rank 0 alone writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from rl_contracts.documents.manifest import FileEntry, TensorEntry
from rl_contracts.stores.clients.multipart import Source
from rl_contracts.stores.files import artifacts
from rl_policy_codec import state as codec
from rl_policy_codec.patch import Elements
from rl_trainer.context import uploads
from rl_trainer.model.files import safetensors_files
from rl_trainer.model.files.safetensors_files import FileContent, FileLayout, Form
from rl_trainer.model.weights import Snapshot
from rl_trainer.publish.handover import PolicyFiles

FILE_BYTES = 1 << 30
NO_VERSION = 0
MODEL_STEM = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSize:
    """Start to publish a snapshot; respond with its size in full and as a delta."""

    number: int
    """Of the snapshot, as ``SnapshotShard`` named it."""
    base: int
    """Version that a delta would start from; ``NO_VERSION`` when none is wanted."""


@dataclass(frozen=True, slots=True)
class EncodeDelta:
    """Make the delta's files in memory; respond with their size (``EncodedDelta``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadFiles:
    """Upload files under names that no other rank uses (``UploadedFiles``)."""

    prefix: str
    full: bool
    delta: bool
    first_file: int
    """Number of this rank's first full file, ≥ 1."""
    file_count: int
    """Full files of all ranks."""
    first_delta: int
    """Number of this rank's first delta file, ≥ 0."""
    stem: str = MODEL_STEM
    """What names of safetensors files begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAsBase:
    """The policy is published: keep its tensors as the base of the next delta."""

    version: int
    """Of the policy; ``NO_VERSION``: deltas are off, keep nothing."""


ShardRequest: TypeAlias = ReportSize | EncodeDelta | UploadFiles | KeepAsBase


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeReport:
    """Response to ``ReportSize``: bytes of this rank's part of the policy."""

    size_bytes: int
    delta_bytes: float
    """Estimate; infinite where there can be no delta."""
    files: int
    """Safetensors files of this rank's part of a full version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedDelta:
    """Response to ``EncodeDelta``: bytes and number of this rank's delta files."""

    size_bytes: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedFiles:
    """Response to ``UploadFiles``: the files that are in the bucket now."""

    files: list[FileEntry]
    deltas: list[FileEntry]
    tensors: list[TensorEntry]
    """In the order in which they lie in full versions' files."""


ShardResponse: TypeAlias = SizeReport | EncodedDelta | UploadedFiles | None


class PolicyShard:
    """The tensors of one snapshot that this rank publishes.

    Args:
        objects: where the files go: the run's bucket, or a folder.
        tensors: must not change any more.
        executor: for encoding and digests.
    """

    def __init__(self, objects: PolicyFiles, tensors: Snapshot, executor: Executor) -> None:
        self._objects, self._executor = objects, executor
        self._state = {name: safetensors_files.flat(tensor) for name, tensor in tensors.items()}
        self._forms = {name: safetensors_files.form(tensor) for name, tensor in tensors.items()}
        self._groups = safetensors_files.groups(self._forms, file_bytes=FILE_BYTES)
        self._deltas: list[bytes] = []

    @property
    def state(self) -> Mapping[str, Elements]:
        """The tensors as flat arrays of unsigned integers, by name."""
        return self._state

    @property
    def forms(self) -> Mapping[str, Form]:
        """Dtype, shape and size of each tensor."""
        return self._forms

    def report_size(self, base: PolicyShard | None) -> SizeReport:
        """Bytes in full, and estimated bytes of a delta from ``base``."""
        size = sum(form.size_bytes for form in self._forms.values())
        delta = math.inf
        if base is not None and base.forms == self._forms:
            delta = size * codec.expected_fraction(self._state, base.state)
        return SizeReport(size_bytes=size, delta_bytes=delta, files=len(self._groups))

    def encode_delta(self, base: PolicyShard) -> EncodedDelta:
        """Make the delta's files, which ``upload`` uploads."""
        self._deltas = codec.encode(self._state, base.state, self._executor)
        return EncodedDelta(size_bytes=sum(map(len, self._deltas)), files=len(self._deltas))

    def upload(self, request: UploadFiles) -> UploadedFiles:
        """Upload the requested files; raises the first error once all uploads have ended."""
        layout = self._layout(request)
        named = enumerate(self._deltas if request.delta else [], start=request.first_delta)
        deltas = {f"delta-{number:05d}.zst": content for number, content in named}
        digests = codec.start_digests(self._state, self._executor)
        wanted: list[tuple[str, Source, int]] = [
            (name, partial(_slice, memoryview(content)), len(content))
            for name, content in deltas.items()
        ]
        if request.full:
            wanted += [
                (file.name, FileContent(file, self._state), file.size_bytes) for file in layout
            ]
        uploads.upload(self._objects, request.prefix, wanted)
        sha256 = {name: digest.result() for name, digest in digests.items()}
        return UploadedFiles(
            files=[file.entry for file in layout] if request.full else [],
            deltas=[artifacts.entry(name, content) for name, content in deltas.items()],
            tensors=safetensors_files.tensor_entries(layout, self._forms, sha256),
        )

    def _layout(self, request: UploadFiles) -> list[FileLayout]:
        """This rank's files of a full version."""
        return [
            safetensors_files.file_layout(
                safetensors_files.file_name(number, request.file_count, stem=request.stem),
                self._forms,
                members,
            )
            for number, members in enumerate(self._groups, start=request.first_file)
        ]

    def drop_delta(self) -> None:
        """Free the delta's files, which are not needed once they are in the bucket."""
        self._deltas = []


def _slice(content: memoryview, offset: int, size_bytes: int) -> list[memoryview]:
    return [content[offset : offset + size_bytes]]
