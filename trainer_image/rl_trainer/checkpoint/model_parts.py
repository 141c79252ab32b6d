"""Weight files of a model that all ranks write together: each those of the tensors that it owns.

Nothing here makes a model: that takes index and manifest, which rank 0 alone writes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rl_contracts.documents.manifest import DTYPE_BYTES, FileEntry, TensorEntry
from rl_policy_codec import state as codec
from rl_trainer.context import uploads
from rl_trainer.context.uploads import PartFiles
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model.files import safetensors_files
from rl_trainer.model.files.safetensors_files import FileContent, FileLayout
from rl_trainer.model.weights import Snapshot

FILE_BYTES = 4 << 30
STEM = "model"
DIGESTS_AT_A_TIME = 4
HASHED_BYTES = 32 << 20
"""How much of a file is hashed at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPart:
    """One rank's files, which are in the bucket now."""

    files: list[FileEntry]
    tensors: list[TensorEntry]


def write(
    files: PartFiles,
    prefix: str,
    tensors: Snapshot,
    *,
    world: World = ALONE,
    file_bytes: int = FILE_BYTES,
) -> ModelPart:
    """Write a rank's tensors straight from memory; a collective call.

    Together the files are ``model.safetensors``, or numbered in the order of ranks as transformers
    numbers them.

    Args:
        files: the bucket.
        prefix: of the model's keys.
        tensors: that this rank owns, under the names of the model's files.
        world: the ranks.
        file_bytes: of one file at most, unless a single tensor is larger.

    Raises:
        RLError: the bucket did not take the files.
    """
    state = {name: safetensors_files.flat(tensor) for name, tensor in tensors.items()}
    forms = {name: safetensors_files.form(tensor) for name, tensor in tensors.items()}
    groups = safetensors_files.groups(forms, file_bytes=file_bytes)
    counts = world.gather(len(groups))
    first, count = 1 + sum(counts[: world.rank]), sum(counts)
    layouts = [
        safetensors_files.file_layout(
            safetensors_files.file_name(number, count, stem=STEM), forms, members
        )
        for number, members in enumerate(groups, start=first)
    ]
    contents = [FileContent(layout, state) for layout in layouts]
    with ThreadPoolExecutor(DIGESTS_AT_A_TIME, thread_name_prefix="model-digest") as executor:
        digests = codec.start_digests(state, executor)
        of_files = executor.map(_digest, layouts, contents)
        wanted = zip(layouts, contents, strict=True)
        uploads.upload(
            files, prefix, [(layout.name, content, layout.size_bytes) for layout, content in wanted]
        )
    return ModelPart(
        files=[
            FileEntry(name=layout.name, size_bytes=layout.size_bytes, sha256=digest)
            for layout, digest in zip(layouts, of_files, strict=True)
        ],
        tensors=safetensors_files.tensor_entries(
            layouts, forms, {name: digest.result() for name, digest in digests.items()}
        ),
    )


def index(parts: Sequence[ModelPart]) -> bytes | None:
    """The file that says where each tensor lies, as transformers writes it; None for one file."""
    if sum(len(part.files) for part in parts) == 1:
        return None
    tensors = [tensor for part in parts for tensor in part.tensors]
    written = {
        "metadata": {"total_size": sum(map(_size_bytes, tensors))},
        "weight_map": {tensor.name: tensor.file for tensor in tensors},
    }
    return f"{json.dumps(written, indent=2, sort_keys=True)}\n".encode()


def _size_bytes(tensor: TensorEntry) -> int:
    return math.prod(tensor.shape) * DTYPE_BYTES[tensor.dtype]


def _digest(layout: FileLayout, content: FileContent) -> str:
    digest = hashlib.sha256()
    for offset in range(0, layout.size_bytes, HASHED_BYTES):
        for piece in content(offset, min(HASHED_BYTES, layout.size_bytes - offset)):
            digest.update(piece)
    return digest.hexdigest()
