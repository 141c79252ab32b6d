"""Checks of a policy: nothing that fails here ever reaches the engine, which would die of it."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from rl_contracts.documents.manifest import (
    HEADER_LENGTH_BYTES,
    MAX_HEADER_BYTES,
    Manifest,
    TensorEntry,
    TensorHeader,
    parse_safetensors_header,
)
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.errors import IntegrityError
from rl_sampler.weights import MANIFEST_FILE, POINTER_FILE

CHUNK_BYTES = 1 << 20
FLOATS = {"F64", "F32", "BF16", "F16"}
PRECISIONS = {"BF16": "BF16", "FP32": "F32"}
"""safetensors' word for the manifest's ``training.precision``."""
TIED = "lm_head.weight"
INDEX_FILE = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class TensorKind:
    """What a tensor must be like."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """What every policy of a model must hold, and nothing else."""

    tensors: Mapping[str, TensorKind]
    optional: frozenset[str] = frozenset()
    """Names that a policy may leave out: the output layer where it is tied to the embedding."""


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model in Hugging Face layout, as transformers chooses them."""
    index = folder / INDEX_FILE
    if index.is_file():
        names = set(json.loads(index.read_bytes())["weight_map"].values())
        return [folder / name for name in sorted(names)]
    single = folder / "model.safetensors"
    return [single] if single.is_file() else sorted(folder.glob("*.safetensors"))


def read_header(path: Path) -> dict[str, TensorHeader]:
    """Header of a safetensors file, checked against the file's length.

    Raises:
        IntegrityError: the file is not what its header says.
    """
    with path.open("rb") as file:
        start = file.read(HEADER_LENGTH_BYTES)
        if len(start) == HEADER_LENGTH_BYTES:
            (length,) = struct.unpack("<Q", start)
            start += file.read(min(length, MAX_HEADER_BYTES))
    try:
        return parse_safetensors_header(start, file_bytes=path.stat().st_size)
    except IntegrityError as error:
        raise IntegrityError(f"{path.name}: {error}") from error


def model_signature(folder: Path, *, precision: Literal["BF16", "FP32"]) -> Signature:
    """What every policy of a model must hold: its tensors, floats at the published precision.

    Raises:
        IntegrityError: a file of the model is malformed.
    """
    found: dict[str, TensorKind] = {}
    for path in weight_files(folder):
        for name, header in read_header(path).items():
            dtype = PRECISIONS[precision] if header.dtype in FLOATS else header.dtype
            found[name] = TensorKind(dtype, tuple(header.shape))
    return Signature(found, frozenset({TIED}) if _is_tied(folder) else frozenset())


def _is_tied(folder: Path) -> bool:
    config = json.loads((folder / "config.json").read_bytes())
    return bool(config.get("tie_word_embeddings", False))


def check_manifest(manifest: Manifest, *, pointer: PolicyPointer, signature: Signature) -> None:
    """Check a manifest alone, before anything is downloaded.

    Raises:
        IntegrityError: it is not this policy's, or not of this model.
    """
    named = (manifest.kind, manifest.version, manifest.epoch, manifest.step)
    wanted = ("policy", pointer.version, pointer.epoch, pointer.step)
    if named != wanted:
        raise IntegrityError(f"manifest is of {named}, the pointer names {wanted}")
    files = {entry.name for entry in manifest.files}
    for name in files:
        if Path(name).name != name or name in {MANIFEST_FILE, POINTER_FILE, INDEX_FILE}:
            raise IntegrityError(f"manifest names a file {name!r}")
    tensors = {entry.name: entry for entry in manifest.tensors}
    if len(files) != len(manifest.files) or len(tensors) != len(manifest.tensors):
        raise IntegrityError("manifest names a file or a tensor twice")
    _check_tensors(tensors, signature)
    holders = {entry.file for entry in manifest.tensors}
    if holders != {name for name in files if name.endswith(".safetensors")}:
        raise IntegrityError(f"tensors lie in {sorted(holders)}, files are {sorted(files)}")


def _check_tensors(tensors: Mapping[str, TensorEntry], signature: Signature) -> None:
    # A missing tensor would keep its old value in the engine, and an unknown one is ignored there.
    missing = sorted(signature.tensors.keys() - signature.optional - tensors.keys())
    unknown = sorted(tensors.keys() - signature.tensors.keys())
    if missing or unknown:
        raise IntegrityError(f"tensors missing: {missing[:5]}, not the model's: {unknown[:5]}")
    for name, entry in tensors.items():
        found, wanted = TensorKind(entry.dtype, tuple(entry.shape)), signature.tensors[name]
        if found != wanted:
            raise IntegrityError(f"tensor {name} is {found}, the model's is {wanted}")


def check_folder(folder: Path, manifest: Manifest) -> None:
    """Read every file and check digests, sizes and headers.

    Raises:
        IntegrityError: naming file or tensor.
    """
    for entry in manifest.files:
        path = folder / entry.name
        if not path.is_file() or path.stat().st_size != entry.size_bytes:
            raise IntegrityError(f"{entry.name} does not have {entry.size_bytes} bytes")
        inside = {one.name: one for one in manifest.tensors if one.file == entry.name}
        digest = _checked_tensors(path, inside) if inside else _digest(path)
        if digest != entry.sha256:
            raise IntegrityError(f"{entry.name} has digest {digest}, expected {entry.sha256}")


def _checked_tensors(path: Path, wanted: Mapping[str, TensorEntry]) -> str:
    headers = read_header(path)
    if headers.keys() != wanted.keys():
        differing = sorted(headers.keys() ^ wanted.keys())
        raise IntegrityError(f"{path.name}: manifest and file differ in tensors {differing[:5]}")
    whole = hashlib.sha256()
    with path.open("rb") as file:
        size_of_tensors = max(one.data_offsets[1] for one in headers.values())
        whole.update(file.read(path.stat().st_size - size_of_tensors))
        for name, header in sorted(headers.items(), key=lambda item: item[1].data_offsets):
            entry = wanted[name]
            if (header.dtype, header.shape) != (entry.dtype, entry.shape):
                raise IntegrityError(
                    f"{path.name}: tensor {name} is {header.dtype} {header.shape}, "
                    f"manifest says {entry.dtype} {entry.shape}"
                )
            begin, end = header.data_offsets
            digest = _consume(file, end - begin, whole)
            if digest != entry.sha256:
                raise IntegrityError(f"{path.name}: tensor {name} has digest {digest}")
    return whole.hexdigest()


def _consume(file: BinaryIO, size: int, whole: hashlib._Hash) -> str:
    digest = hashlib.sha256()
    while size > 0:
        chunk = file.read(min(size, CHUNK_BYTES))
        if not chunk:
            raise IntegrityError("file ended while it was read")
        digest.update(chunk)
        whole.update(chunk)
        size -= len(chunk)
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
