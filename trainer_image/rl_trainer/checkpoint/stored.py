"""The tensors of a checkpoint in the bucket, read piece by piece and each piece verified."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from functools import partial

import torch
from pydantic import ValidationError
from torch import Tensor

from rl_contracts.documents.manifest import (
    DTYPE_BYTES,
    HEADER_LENGTH_BYTES,
    MAX_HEADER_BYTES,
    FileEntry,
    Manifest,
    parse_safetensors_header,
)
from rl_contracts.errors import IntegrityError
from rl_contracts.stores.files import artifacts
from rl_contracts.stores.objects import Objects
from rl_trainer.checkpoint.parts import INDEX_SUFFIX, PartIndex, PieceEntry
from rl_trainer.model.files.safetensors_files import DTYPES
from rl_trainer.model.parallel import spans
from rl_trainer.model.parallel.pieces import Piece, StoredTensor
from rl_trainer.model.parallel.spans import Spans

MASTERS, MOMENTS, AUXILIARY = "masters/", "moments/", "auxiliary/"
"""What names of tensors begin with; auxiliary are those of critic and refreshed reference."""
WHOLE_FILES = {
    "masters.safetensors": MASTERS,
    "optimizer.safetensors": MOMENTS,
    "auxiliary.safetensors": AUXILIARY,
}
"""Files of earlier releases, of whole tensors, and the section of the state that each has."""
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


def tensors(objects: Objects, prefix: str, manifest: Manifest) -> dict[str, StoredTensor]:
    """A checkpoint's tensors by name; what they hold is read when it is asked for.

    Raises:
        IntegrityError: an index is not the one that was written.
        ObjectMissingError: a file is gone.
    """
    entries: dict[str, list[PieceEntry]] = {}
    sizes = {file.name: file.size_bytes for file in manifest.files}
    for file in manifest.files:
        for entry in _pieces(objects, prefix, manifest, file):
            if entry.offset + _size_bytes(entry) > sizes.get(entry.file, 0):
                raise IntegrityError(f"{prefix}{entry.file} ends before {entry.tensor}")
            entries.setdefault(entry.tensor, []).append(entry)
    return {name: _tensor(objects, prefix, pieces) for name, pieces in entries.items()}


def _pieces(
    objects: Objects, prefix: str, manifest: Manifest, file: FileEntry
) -> Iterator[PieceEntry]:
    if file.name.endswith(INDEX_SUFFIX):
        try:
            index = PartIndex.model_validate_json(artifacts.read(objects, prefix, file))
        except ValidationError as error:
            raise IntegrityError(f"{prefix}{file.name} is no index: {error}") from error
        yield from index.pieces
    elif file.name in WHOLE_FILES:
        yield from _of_whole_file(objects, prefix, manifest, file)


def _of_whole_file(
    objects: Objects, prefix: str, manifest: Manifest, file: FileEntry
) -> Iterator[PieceEntry]:
    """The tensors of a file of an earlier release; their digests are in the manifest."""
    key = prefix + file.name
    (length,) = struct.unpack("<Q", _read(objects, key, 0, HEADER_LENGTH_BYTES))
    start = HEADER_LENGTH_BYTES + min(length, MAX_HEADER_BYTES)
    header = parse_safetensors_header(
        bytes(_read(objects, key, 0, start)), file_bytes=file.size_bytes
    )
    for each in manifest.tensors:
        if each.file == file.name:
            if each.name not in header:
                raise IntegrityError(f"{key} has no tensor {each.name}")
            yield PieceEntry(
                tensor=WHOLE_FILES[file.name] + each.name,
                shape=each.shape,
                dtype=each.dtype,
                spans=[list(ranges) for ranges in spans.whole(each.shape)],
                file=file.name,
                offset=start + header[each.name].data_offsets[0],
                sha256=each.sha256,
            )


def _tensor(objects: Objects, prefix: str, entries: list[PieceEntry]) -> StoredTensor:
    first = entries[0]
    pieces = []
    for entry in entries:
        if (entry.shape, entry.dtype) != (first.shape, first.dtype):
            raise IntegrityError(f"{prefix} has pieces of two tensors {first.tensor}")
        pieces.append(Piece(_spans(entry), partial(_load, objects, prefix, entry)))
    return StoredTensor(tuple(first.shape), TORCH_DTYPES[first.dtype], tuple(pieces))


def _load(objects: Objects, prefix: str, entry: PieceEntry) -> Tensor:
    """A piece's numbers.

    Raises:
        IntegrityError: they are not those that were written.
        ObjectMissingError: the file is gone.
    """
    key = prefix + entry.file
    content = _read(objects, key, entry.offset, _size_bytes(entry))
    digest = hashlib.sha256(content).hexdigest()
    if digest != entry.sha256:
        raise IntegrityError(
            f"{objects.uri(key)} has {entry.tensor} with digest {digest}, expected {entry.sha256}"
        )
    return torch.frombuffer(content, dtype=TORCH_DTYPES[entry.dtype])


def _size_bytes(entry: PieceEntry) -> int:
    return spans.count(_spans(entry)) * DTYPE_BYTES[entry.dtype]


def _spans(entry: PieceEntry) -> Spans:
    return tuple(tuple(ranges) for ranges in entry.spans)


def _read(objects: Objects, key: str, offset: int, size_bytes: int) -> bytearray:
    content, position = bytearray(size_bytes), 0

    def take(chunk: bytes) -> None:
        nonlocal position
        content[position : position + len(chunk)] = chunk
        position += len(chunk)

    objects.read_range(key, offset=offset, size_bytes=size_bytes, consume=take)
    return content
