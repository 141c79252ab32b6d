"""Manifests of policies, checkpoints and models in the bucket, identified by their digest.

A manifest is written after all of its files, so a prefix with a manifest is complete.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, ValidationError, model_validator

from rl_contracts.documents.base import Document, Record
from rl_contracts.errors import IntegrityError

HEADER_LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
DTYPE_BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}
PYTORCH = {"format": "pt"}
"""Metadata by which transformers knows whose tensors a safetensors file holds."""


class FileEntry(Record):
    """An object under the manifest's prefix."""

    name: str
    size_bytes: int
    sha256: str = ""
    """Digest of the whole file; empty when ``header_sha256`` is set."""
    header_sha256: str = ""
    """Safetensors files of policies: digest of everything before the tensors, length included.
    Together with the tensors' digests it covers every byte, so no byte is hashed twice."""


class TensorEntry(Record):
    """A tensor of a safetensors file; in a delta, the tensor after the delta is applied."""

    name: str
    file: str
    dtype: str
    """Data type by its safetensors name, e.g. ``BF16``."""
    shape: list[int]
    sha256: str
    """Digest of the tensor's bytes."""


class BasePolicy(Record):
    """The published policy that a delta applies to; of the same epoch."""

    version: int
    prefix: str
    """Key prefix in the run's bucket; ends with a slash."""
    manifest_sha256: str


class DeltaEntry(Record):
    """The changes that make a policy from its base."""

    base: BasePolicy
    files: list[FileEntry]
    """Delta files in any order; empty when nothing changed. ``docs/reference/policy-format.md``
    defines their format."""

    @property
    def size_bytes(self) -> int:
        """Bytes to download."""
        return sum(file.size_bytes for file in self.files)


class AdapterEntry(Record):
    """Base model and settings of an adapter (LoRA, arXiv 2106.09685)."""

    base_uri: str
    """URI of the base model."""
    base_sha256: str
    """Digest of the base model's weights: ``rl_contracts.model_files.weights_digest``."""
    rank: int
    alpha: float
    """The adapter adds (alpha / rank) B A x to a layer's output."""
    dropout: float
    targets: list[str]
    """Sorted last name parts of the layers that have an adapter, e.g. ``q_proj``."""


class Manifest(Record):
    """Everything that is stored under a prefix."""

    format: Literal["rl-operator/1"] = "rl-operator/1"
    kind: Literal["policy", "checkpoint", "model"]
    content: Literal["full", "delta"] = "full"
    """``delta``: only the delta's files exist."""
    run: str
    epoch: int
    step: int
    version: int = 0
    """Policies only."""
    files: list[FileEntry]
    tensors: list[TensorEntry] = Field(default_factory=list)
    delta: DeltaEntry | None = None
    """Policies only; a full policy may have a delta as well, for samplers that hold its base."""
    adapter: AdapterEntry | None = None
    """Policies only: the tensors are those of an adapter, by PEFT's names, not of a whole model."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.content == "delta" and (self.files or self.delta is None):
            raise ValueError("content delta needs a delta section and must list no full files")
        return self

    @property
    def full_bytes(self) -> int:
        """Bytes to download without holding a base."""
        return sum(file.size_bytes for file in self.files)

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(
            DTYPE_BYTES.get(tensor.dtype, 0) * math.prod(tensor.shape) for tensor in self.tensors
        )

    @property
    def weights_sha256(self) -> str:
        """Digest of all tensors, and of whose adapter they are: the same for the same weights.

        It depends neither on the version nor on how the tensors are divided among files.
        """
        tensors = sorted(
            (tensor.name, tensor.dtype, tensor.shape, tensor.sha256) for tensor in self.tensors
        )
        adapter = None if self.adapter is None else self.adapter.model_dump()
        encoded = json.dumps([tensors, adapter], sort_keys=True).encode()
        return hashlib.sha256(encoded).hexdigest()

    def to_bytes(self) -> bytes:
        """Canonical JSON: the same manifest has the same digest."""
        return json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, stored: bytes, *, sha256: str) -> Manifest:
        """Parse a manifest.

        Raises:
            IntegrityError: the digest differs or the text is not a manifest.
        """
        digest = hashlib.sha256(stored).hexdigest()
        if digest != sha256:
            raise IntegrityError(f"manifest has digest {digest}, expected {sha256}")
        try:
            return cls.model_validate_json(stored)
        except ValidationError as error:
            raise IntegrityError(f"not a manifest: {error}") from error


class PolicyRecord(Document):
    """Catalogue entry of a published policy, which retention and audit read."""

    collection: ClassVar[str] = "policies"

    run: str
    version: int
    epoch: int
    step: int
    parent: int
    """Previous version; 0 for the first."""
    prefix: str
    manifest_sha256: str
    weights_sha256: str = ""
    """``Manifest.weights_sha256``; empty in documents of earlier releases."""
    size_bytes: int
    """Bytes in the bucket."""
    published_at: float
    publish_seconds: float
    content: Literal["full", "delta"] = "full"
    base_version: int = 0
    """Version that the delta applies to; 0 without a delta."""
    marked_at: float | None = None
    """Store time at which retention marked it as not needed; it is deleted some time later."""


class TensorHeader(Record):
    """A tensor's entry in a safetensors header."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]
    """Bytes [begin, end) after the header."""


def parse_safetensors_header(start: bytes, *, file_bytes: int) -> dict[str, TensorHeader]:
    """Read a safetensors header from the first bytes of a file and check it against its length.

    Args:
        start: at least the length field and the whole header.
        file_bytes: length of the file.

    Raises:
        IntegrityError: for a malformed header, for tensors that do not fill the file exactly, or
            whose shape and dtype do not match their size. Such a file crashes the engine.
    """
    if len(start) < HEADER_LENGTH_BYTES:
        raise IntegrityError("shorter than a safetensors length field")
    (length,) = struct.unpack("<Q", start[:HEADER_LENGTH_BYTES])
    body = start[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + length]
    if length > MAX_HEADER_BYTES or len(body) != length:
        raise IntegrityError(f"safetensors header of {length} bytes is incomplete or too long")
    try:
        declared = json.loads(body)
        entries = {
            name: TensorHeader.model_validate(value)
            for name, value in declared.items()
            if name != "__metadata__"
        }
    except (ValueError, AttributeError) as error:
        raise IntegrityError(f"malformed safetensors header: {error}") from error
    _check_extent(entries, data_bytes=file_bytes - HEADER_LENGTH_BYTES - length)
    return entries


def safetensors_header(
    tensors: Mapping[str, tuple[str, Sequence[int]]], *, metadata: Mapping[str, str] | None = None
) -> bytes:
    """All that lies in a safetensors file before its tensors, which follow in this order.

    Args:
        tensors: data type, by its safetensors name, and shape of each.
        metadata: of the file.
    """
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + DTYPE_BYTES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)  # tensors begin at a multiple of the widest element
    return struct.pack("<Q", len(encoded)) + encoded


def _check_extent(entries: dict[str, TensorHeader], *, data_bytes: int) -> None:
    position = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, end = entry.data_offsets
        size = DTYPE_BYTES.get(entry.dtype, 0)
        for dimension in entry.shape:
            size *= dimension
        if begin != position or end - begin != size or entry.dtype not in DTYPE_BYTES:
            raise IntegrityError(f"tensor {name} does not match its declared offsets and shape")
        position = end
    if position != data_bytes:
        raise IntegrityError(f"file holds {data_bytes} bytes of tensors, header says {position}")
