"""One rank's portion of a policy: whole tensors, encoded and uploaded by the rank that holds them.

Rank 0 asks, every rank answers for its own tensors, rank 0 among them. Nothing here makes a policy
visible: that is the manifest's part, which rank 0 alone writes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from rl_contracts.documents.manifest import FileEntry, TensorEntry
from rl_contracts.stores.clients.multipart import Source
from rl_contracts.stores.objects import Objects
from rl_policy_codec import state as codec
from rl_policy_codec.patch import Elements
from rl_trainer.model.weights import Snapshot
from rl_trainer.publish import safetensors_files
from rl_trainer.publish.safetensors_files import Form, ShardContent

SHARD_BYTES = 1 << 30
FILES_AT_A_TIME = 2
PARTS_AT_A_TIME = 3
NO_VERSION = 0
MODEL_STEM = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weigh:
    """Take up a snapshot and tell how large it is, in full and as a delta."""

    number: int
    """Of the snapshot, as it was taken."""
    base: int
    """Version that a delta would start from; 0 when none is wanted."""


@dataclass(frozen=True, slots=True)
class Encode:
    """Make the delta's files and tell their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Upload files under names that no other rank uses."""

    prefix: str
    full: bool
    delta: bool
    first_file: int
    """From 1 on; of ``file_count`` in all."""
    file_count: int
    first_delta: int
    """From 0 on."""
    stem: str = MODEL_STEM
    """What names of safetensors files begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The policy is published: keep it for the next delta, or nothing where there are none."""

    version: int


Question: TypeAlias = Weigh | Encode | Write | Keep


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """Answer to ``Weigh``."""

    size_bytes: int
    delta_bytes: float
    """Estimated; infinite where there can be no delta."""
    files: int
    """Of a full version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Answer to ``Encode``."""

    size_bytes: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Answer to ``Write``: what is in the bucket now."""

    files: list[FileEntry]
    deltas: list[FileEntry]
    tensors: list[TensorEntry]
    """In the order in which they lie in full versions' files."""


Answer: TypeAlias = Weight | Encoded | Written | None


class Portion:
    """The tensors of one snapshot that this rank publishes."""

    def __init__(self, objects: Objects, tensors: Snapshot, executor: Executor) -> None:
        """See the class.

        Args:
            objects: the run's bucket.
            tensors: must not change any more.
            executor: for encoding and digests.
        """
        self._objects, self._executor = objects, executor
        self._state = {name: safetensors_files.flat(one) for name, one in tensors.items()}
        self._forms = {name: safetensors_files.form(one) for name, one in tensors.items()}
        self._groups = safetensors_files.groups(self._forms, shard_bytes=SHARD_BYTES)
        self._deltas: list[bytes] = []

    @property
    def state(self) -> Mapping[str, Elements]:
        """The tensors' elements."""
        return self._state

    @property
    def forms(self) -> Mapping[str, Form]:
        """What the tensors are like."""
        return self._forms

    def weigh(self, base: Portion | None) -> Weight:
        """How large it is."""
        size = sum(form.size_bytes for form in self._forms.values())
        delta = math.inf
        if base is not None and base.forms == self._forms:
            delta = size * codec.expected_fraction(self._state, base.state)
        return Weight(size_bytes=size, delta_bytes=delta, files=len(self._groups))

    def encode(self, base: Portion) -> Encoded:
        """Make the delta's files, which ``write`` uploads."""
        self._deltas = codec.encode(self._state, base.state, self._executor)
        return Encoded(size_bytes=sum(map(len, self._deltas)), files=len(self._deltas))

    def write(self, order: Write) -> Written:
        """Upload what is wanted; raises the first error after the others have ended."""
        numbered = enumerate(self._groups, start=order.first_file)
        layout = [
            safetensors_files.shard(
                safetensors_files.file_name(number, order.file_count, stem=order.stem),
                self._forms,
                members,
            )
            for number, members in numbered
        ]
        named = enumerate(self._deltas if order.delta else [], start=order.first_delta)
        deltas = {f"delta-{number:05d}.zst": one for number, one in named}
        digests = codec.start_digests(self._state, self._executor)
        wanted: list[tuple[str, Source, int]] = [
            (name, partial(_slice, memoryview(one)), len(one)) for name, one in deltas.items()
        ]
        if order.full:
            wanted += [(one.name, ShardContent(one, self._state), one.size_bytes) for one in layout]
        upload(self._objects, order.prefix, wanted)
        found = {name: one.result() for name, one in digests.items()}
        return Written(
            files=[one.entry for one in layout] if order.full else [],
            deltas=[
                FileEntry(name=name, size_bytes=len(one), sha256=hashlib.sha256(one).hexdigest())
                for name, one in deltas.items()
            ],
            tensors=safetensors_files.tensor_entries(layout, self._forms, found),
        )

    def let_go(self) -> None:
        """Drop the delta's files, which nobody needs once they are in the bucket."""
        self._deltas = []


def upload(objects: Objects, prefix: str, wanted: list[tuple[str, Source, int]]) -> None:
    """Write files of these names, contents and sizes, a few at a time."""
    with (
        ThreadPoolExecutor(PARTS_AT_A_TIME, thread_name_prefix="upload-part") as parts,
        ThreadPoolExecutor(FILES_AT_A_TIME, thread_name_prefix="upload") as files,
    ):
        jobs = [
            files.submit(objects.put_parts, prefix + name, source, size_bytes=size, executor=parts)
            for name, source, size in wanted
        ]
        wait(jobs)
    for job in jobs:
        job.result()


def _slice(content: memoryview, offset: int, size_bytes: int) -> list[memoryview]:
    return [content[offset : offset + size_bytes]]
