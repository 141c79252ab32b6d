"""Checks of a policy: nothing that fails here ever reaches the engine, which would die of it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from rl_contracts import adapters
from rl_contracts.documents.manifest import (
    DTYPE_BYTES,
    AdapterEntry,
    FileEntry,
    Manifest,
    TensorEntry,
)
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.errors import IntegrityError
from rl_contracts.model_files import INDEX_FILE, read_header, weight_files
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.lora import LoRA
from rl_policy_codec import state as codec
from rl_policy_codec.patch import Elements, elements
from rl_sampler.engine.weights import MANIFEST_FILE, POINTER_FILE
from rl_sampler.policy.spans import spans_of

MAX_THREADS = 4
FLOATS = {"F64", "F32", "BF16", "F16"}
PRECISIONS = {"BF16": "BF16", "FP32": "F32"}
"""safetensors' word for the manifest's ``training.precision``."""
TIED = "lm_head.weight"
RESERVED = {MANIFEST_FILE, POINTER_FILE, INDEX_FILE, adapters.CONFIG_FILE}


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
    adapter: AdapterEntry | None = None
    """Where policies are adapters: of what."""


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


def adapter_signature(
    folder: Path, *, uri: str, section: LoRA, precision: Literal["BF16", "FP32"]
) -> Signature:
    """What every policy of a run with adapters must hold; reads all of the model's weights.

    Args:
        folder: the model.
        uri: the manifest's ``spec.model.uri``.
        section: the manifest's ``training.lora``.
        precision: of published policies.

    Raises:
        IntegrityError: a file of the model is malformed.
    """
    entry = adapters.adapter_entry(folder, uri=uri, section=section)
    shapes = adapters.shapes(adapters.model_tensors(folder), entry)
    kinds = {name: TensorKind(PRECISIONS[precision], shape) for name, shape in shapes.items()}
    return Signature(kinds, adapter=entry)


def run_signature(folder: Path, spec: RLJobSpec) -> Signature:
    """What every policy of a run must hold; raises IntegrityError for a malformed model."""
    training = spec.training
    if training.lora is None:
        return model_signature(folder, precision=training.precision)
    return adapter_signature(
        folder, uri=spec.model.uri, section=training.lora, precision=training.precision
    )


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
    if manifest.adapter != signature.adapter:
        raise IntegrityError(
            f"policy is {_shown(manifest.adapter)}, this run's are {_shown(signature.adapter)}"
        )
    tensors = {entry.name: entry for entry in manifest.tensors}
    if len(tensors) != len(manifest.tensors):
        raise IntegrityError("manifest names a tensor twice")
    _check_files(manifest)
    _check_tensors(tensors, signature)


def _shown(adapter: AdapterEntry | None) -> str:
    return "no adapter" if adapter is None else str(adapter.model_dump(exclude_defaults=True))


def _check_files(manifest: Manifest) -> None:
    files = [entry.name for entry in manifest.files]
    deltas = [entry.name for entry in manifest.delta.files] if manifest.delta else []
    holders = {entry.file for entry in manifest.tensors}
    for name in {*files, *deltas, *holders}:
        if Path(name).name != name or name.startswith(".") or name in RESERVED:
            raise IntegrityError(f"manifest names a file {name!r}")
    if len({*files, *deltas}) != len(files) + len(deltas):
        raise IntegrityError("manifest names a file twice")
    if any(not name.endswith(".safetensors") for name in holders):
        raise IntegrityError(f"tensors lie in {sorted(holders)}")
    if manifest.content == "full" and holders != {n for n in files if n.endswith(".safetensors")}:
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


def check_folder(folder: Path, manifest: Manifest, *, compared: bool = False) -> None:
    """Check files' sizes, headers and digests.

    Args:
        folder: where they lie.
        manifest: what they must be.
        compared: the digests of ``spans_of`` were compared when the files were written; they are
            not read again, but where a tensor lies elsewhere than there.

    Raises:
        IntegrityError: naming file or tensor.
    """
    for entry in manifest.files:
        _check_file(folder / entry.name, entry, compared=compared)
    with ThreadPoolExecutor(threads(), thread_name_prefix="verify") as pool:
        for name in sorted({one.file for one in manifest.tensors}):
            inside = {one.name: one for one in manifest.tensors if one.file == name}
            _check_header(folder / name, inside)
            state = mapped([folder / name])
            if compared:
                proven = _proven(folder / name, manifest)
                state = {tensor: flat for tensor, flat in state.items() if tensor not in proven}
            for tensor, digest in codec.digests(state, pool).items():
                if digest != inside[tensor].sha256:
                    raise IntegrityError(f"{name}: tensor {tensor} has digest {digest}")


def _check_file(path: Path, entry: FileEntry, *, compared: bool) -> None:
    if not path.is_file() or path.stat().st_size != entry.size_bytes:
        raise IntegrityError(f"{entry.name} does not have {entry.size_bytes} bytes")
    if compared:
        return
    if entry.sha256 and _digest(path) != entry.sha256:
        raise IntegrityError(f"{entry.name} does not have digest {entry.sha256}")
    if entry.header_sha256 and _header_digest(path) != entry.header_sha256:
        raise IntegrityError(f"{entry.name} has another header than its manifest says")


def _proven(path: Path, manifest: Manifest) -> set[str]:
    """Tensors that lie, by the file's own header, where their digest was compared."""
    entries = [file for file in manifest.files if file.name == path.name]
    spans = {(one.name, one.begin, one.end) for each in entries for one in spans_of(each, manifest)}
    headers = read_header(path)
    first = path.stat().st_size - max(
        (header.data_offsets[1] for header in headers.values()), default=0
    )
    return {
        name
        for name, one in headers.items()
        if (name, first + one.data_offsets[0], first + one.data_offsets[1]) in spans
    }


def threads() -> int:
    """Threads for work that the processors bound."""
    return min(MAX_THREADS, len(os.sched_getaffinity(0)))


def mapped(paths: Iterable[Path], *, mode: Literal["r", "r+"] = "r") -> dict[str, Elements]:
    """Map every tensor of safetensors files as flat elements; with ``r+`` writes go to the files.

    Raises:
        IntegrityError: a file is not what its header says.
    """
    state: dict[str, Elements] = {}
    for path in paths:
        headers = read_header(path)
        size = max((one.data_offsets[1] for one in headers.values()), default=0)
        raw = np.memmap(path, np.uint8, mode) if size else np.empty(0, np.uint8)
        start = raw.size - size
        for name, header in headers.items():
            begin, end = header.data_offsets
            part = raw[start + begin : start + end] if end > begin else b""
            state[name] = elements(part, item_bytes=DTYPE_BYTES[header.dtype])
    return state


def _check_header(path: Path, wanted: Mapping[str, TensorEntry]) -> None:
    if not path.is_file():
        raise IntegrityError(f"{path.name} is missing")
    headers = read_header(path)
    if headers.keys() != wanted.keys():
        differing = sorted(headers.keys() ^ wanted.keys())
        raise IntegrityError(f"{path.name}: manifest and file differ in tensors {differing[:5]}")
    for name, header in headers.items():
        entry = wanted[name]
        if (header.dtype, header.shape) != (entry.dtype, entry.shape):
            raise IntegrityError(
                f"{path.name}: tensor {name} is {header.dtype} {header.shape}, "
                f"manifest says {entry.dtype} {entry.shape}"
            )


def _header_digest(path: Path) -> str:
    size = max((one.data_offsets[1] for one in read_header(path).values()), default=0)
    with path.open("rb") as file:
        return hashlib.sha256(file.read(path.stat().st_size - size)).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
