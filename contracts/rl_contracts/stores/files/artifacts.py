"""Folders in the bucket under a manifest: uploaded file by file, complete once it is there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from rl_contracts.documents.manifest import FileEntry, Manifest, TensorEntry
from rl_contracts.errors import IntegrityError
from rl_contracts.model_files import data_start, is_plain_file_name, read_header
from rl_contracts.stores.objects import Objects, ObjectStat

MANIFEST = "manifest.json"
CHUNK_BYTES = 1 << 22


class Listing(Protocol):
    """Where files can be listed: a bucket, or a folder."""

    def list(self, prefix: str) -> list[ObjectStat]:
        """The files below a prefix."""


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
            tensors += _tensors(path)
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
    return commit(objects, prefix, put_files(objects, folder, prefix=prefix, origin=origin))


def put_files(objects: Objects, folder: Path, *, prefix: str, origin: Origin) -> Manifest:
    """Write a folder's files under a prefix; returns their manifest, which is not written."""
    described = describe(folder, origin)
    for file in described.files:
        objects.put_file(prefix + file.name, folder / file.name)
    return described


def commit(objects: Objects, prefix: str, described: Manifest) -> Uploaded:
    """Write the manifest of files that are there, which makes the folder complete."""
    encoded = described.to_bytes()
    objects.put(prefix + MANIFEST, encoded)
    return Uploaded(
        prefix=prefix,
        manifest_sha256=hashlib.sha256(encoded).hexdigest(),
        size_bytes=described.full_bytes,
    )


def download(
    objects: Objects,
    folder: Path,
    *,
    prefix: str,
    manifest_sha256: str,
    fetched: Callable[[], None] = lambda: None,
) -> Manifest:
    """Fetch a folder, every file verified; ``fetched`` is called after each file.

    Raises:
        IntegrityError: a digest differs, or a file's name would leave the folder.
        ObjectMissingError: a file or the manifest is not there.
    """
    listed = manifest(objects, prefix, sha256=manifest_sha256)
    for file in listed.files:
        if not is_plain_file_name(file.name):
            raise IntegrityError(f"{prefix}{MANIFEST} names a file {file.name!r}")
        objects.get_file(
            prefix + file.name, folder / file.name, sha256=file.sha256, most=file.size_bytes
        )
        fetched()
    return listed


def check_uploaded(objects: Listing, prefix: str, files: Iterable[FileEntry]) -> None:
    """Check that files which several processes have written are all seen by this one.

    Raises:
        IntegrityError: one is not there, or has another size.
    """
    sizes = {
        stored_object.key.removeprefix(prefix): stored_object.size_bytes
        for stored_object in objects.list(prefix)
    }
    for file in files:
        if sizes.get(file.name) != file.size_bytes:
            raise IntegrityError(
                f"{prefix}{file.name} was written with {file.size_bytes} bytes, and has "
                f"{sizes.get(file.name, 'none')}"
            )


def entry(name: str, content: bytes) -> FileEntry:
    """How a manifest names a file with this content."""
    return FileEntry(name=name, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def read(objects: Objects, prefix: str, file: FileEntry) -> bytes:
    """A small file that a manifest names with its digest.

    Raises:
        IntegrityError: it is not the one that was written.
        ObjectMissingError: it is not there.
    """
    content = objects.get(prefix + file.name)
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise IntegrityError(f"{prefix}{file.name} has digest {digest}, expected {file.sha256}")
    return content


def manifest(objects: Objects, prefix: str, *, sha256: str) -> Manifest:
    """A folder's manifest.

    Raises:
        IntegrityError: it is not the one that was written, or none.
        ObjectMissingError: it is not there.
    """
    return Manifest.from_bytes(objects.get(prefix + MANIFEST), sha256=sha256)


def _tensors(path: Path) -> list[TensorEntry]:
    headers = read_header(path)
    data, entries = data_start(path, headers), []
    for name, header in sorted(headers.items()):
        begin, end = header.data_offsets
        entries.append(
            TensorEntry(
                name=name,
                file=path.name,
                dtype=header.dtype,
                shape=header.shape,
                sha256=_sha256(path, start=data + begin, end=data + end),
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
