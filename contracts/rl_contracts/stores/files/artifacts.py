"""Folders in the bucket under a manifest: uploaded file by file, complete once it is there."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rl_contracts.documents.manifest import (
    HEADER_LENGTH_BYTES,
    FileEntry,
    Manifest,
    TensorEntry,
    parse_safetensors_header,
)
from rl_contracts.errors import IntegrityError
from rl_contracts.model_files import is_plain_file_name
from rl_contracts.stores.objects import Objects

MANIFEST = "manifest.json"
CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The run and step that a folder in the bucket belongs to."""

    kind: Literal["policy", "checkpoint", "model"]
    run: str
    epoch: int
    step: int
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """A folder that is complete in the bucket."""

    prefix: str
    manifest_sha256: str
    size_bytes: int


def describe(folder: Path, origin: Origin) -> Manifest:
    """Digests of a folder's files, and of the tensors in its safetensors files."""
    files, tensors = [], []
    for path in sorted(folder.iterdir()):
        size = path.stat().st_size
        digest = _sha256(path, start=0, end=size)
        files.append(FileEntry(name=path.name, size_bytes=size, sha256=digest))
        if path.suffix == ".safetensors":
            tensors += _tensors(path, size)
    return Manifest(
        kind=origin.kind,
        run=origin.run,
        epoch=origin.epoch,
        step=origin.step,
        version=origin.version,
        files=files,
        tensors=tensors,
    )


def upload(objects: Objects, folder: Path, *, prefix: str, origin: Origin) -> Uploaded:
    """Write a folder's files under a prefix (which ends with a slash), then their manifest."""
    manifest = describe(folder, origin)
    for entry in manifest.files:
        objects.put_file(prefix + entry.name, folder / entry.name)
    encoded = manifest.to_bytes()
    objects.put(prefix + MANIFEST, encoded)
    return Uploaded(
        prefix=prefix,
        manifest_sha256=hashlib.sha256(encoded).hexdigest(),
        size_bytes=sum(entry.size_bytes for entry in manifest.files),
    )


def download(objects: Objects, folder: Path, *, prefix: str, manifest_sha256: str) -> Manifest:
    """Fetch a folder, every file verified.

    Raises:
        IntegrityError: a digest differs, or a file's name would leave the folder.
        ObjectMissingError: a file or the manifest is not there.
    """
    stored = objects.get(prefix + MANIFEST)
    manifest = Manifest.from_bytes(stored, sha256=manifest_sha256)
    for entry in manifest.files:
        if not is_plain_file_name(entry.name):
            raise IntegrityError(f"{prefix}{MANIFEST} names a file {entry.name!r}")
        objects.get_file(
            prefix + entry.name, folder / entry.name, sha256=entry.sha256, most=entry.size_bytes
        )
    return manifest


def _tensors(path: Path, size: int) -> list[TensorEntry]:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(HEADER_LENGTH_BYTES))
        file.seek(0)
        start = file.read(HEADER_LENGTH_BYTES + length)
    entries = []
    for name, header in sorted(parse_safetensors_header(start, file_bytes=size).items()):
        begin, end = (len(start) + offset for offset in header.data_offsets)
        entries.append(
            TensorEntry(
                name=name,
                file=path.name,
                dtype=header.dtype,
                shape=header.shape,
                sha256=_sha256(path, start=begin, end=end),
            )
        )
    return entries


def _sha256(path: Path, *, start: int, end: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(start)
        while start < end:
            chunk = file.read(min(CHUNK_BYTES, end - start))
            assert chunk, f"{path} shrank while it was read"
            digest.update(chunk)
            start += len(chunk)
    return digest.hexdigest()
