"""Checks a policy. Hazard: a malformed policy kills the engine, so it must fail here first."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from rl_contracts import adapters
from rl_contracts.documents.manifest import (
    AdapterEntry,
    FileEntry,
    Manifest,
    TensorEntry,
)
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.errors import IntegrityError
from rl_contracts.model_files import (
    INDEX_FILE,
    data_start,
    file_digest,
    is_float32,
    is_plain_file_name,
    read_header,
    weight_files,
)
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.lora import LoRA
from rl_contracts.spec.training.training import Precision
from rl_policy_codec import state as codec
from rl_policy_codec.files import mapped
from rl_sampler.engine.weights import MANIFEST_FILE, POINTER_FILE
from rl_sampler.policy.spans import spans_of

MAX_THREADS = 4
FLOATS = {"F64", "F32", "BF16", "F16"}
PRECISIONS = {"BF16": "BF16", "FP16": "F16", "FP32": "F32"}
"""safetensors' dtype by the manifest's ``training.precision``."""
TIED = "lm_head.weight"
RESERVED = {MANIFEST_FILE, POINTER_FILE, INDEX_FILE, adapters.CONFIG_FILE}


@dataclass(frozen=True, slots=True)
class TensorKind:
    """Dtype (of safetensors) and shape of a tensor."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """The tensors that every policy of a run must hold, and no others."""

    tensors: Mapping[str, TensorKind]
    optional: frozenset[str] = frozenset()
    """Tensors that a policy may leave out: the output layer where it is tied to the embedding."""
    adapter: AdapterEntry | None = None
    """Describes the adapter where policies are adapters."""


def model_signature(folder: Path, *, precision: Precision) -> Signature:
    """The signature of a model's policies: its tensors, with floats at the published precision.

    Raises:
        IntegrityError: a file of the model is malformed.
    """
    kinds: dict[str, TensorKind] = {}
    for path in weight_files(folder):
        for name, header in read_header(path).items():
            dtype = PRECISIONS[precision] if header.dtype in FLOATS else header.dtype
            kinds[name] = TensorKind(dtype, tuple(header.shape))
    return Signature(kinds, frozenset({TIED}) if _is_tied(folder) else frozenset())


def adapter_signature(folder: Path, *, uri: str, section: LoRA, precision: Precision) -> Signature:
    """The signature of policies that are adapters; reads all of the model's weights.

    Args:
        folder: of the model.
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
    """The signature of a run's policies; raises IntegrityError for a malformed model."""
    training, section = spec.training, spec.training.served_adapters
    if section is None:
        return model_signature(folder, precision=training.precision)
    return adapter_signature(
        folder, uri=spec.model.uri, section=section, precision=training.precision
    )


def _is_tied(folder: Path) -> bool:
    config = json.loads((folder / "config.json").read_bytes())
    return bool(config.get("tie_word_embeddings", False))


def check_manifest(manifest: Manifest, *, pointer: PolicyPointer, signature: Signature) -> None:
    """Check a manifest, before anything is downloaded.

    Raises:
        IntegrityError: the manifest is not the pointer's, or its tensors are not the model's.
    """
    named = (manifest.kind, manifest.version, manifest.epoch, manifest.step)
    wanted = ("policy", pointer.version, pointer.epoch, pointer.step)
    if named != wanted:
        raise IntegrityError(f"manifest is of {named}, the pointer names {wanted}")
    if manifest.adapter != signature.adapter:
        raise IntegrityError(
            f"the policy has {_shown(manifest.adapter)}, "
            f"but this run's policies have {_shown(signature.adapter)}"
        )
    tensors = {entry.name: entry for entry in manifest.tensors}
    if len(tensors) != len(manifest.tensors):
        raise IntegrityError("manifest names a tensor twice")
    _check_files(manifest)
    _check_tensors(tensors, signature)


def _shown(adapter: AdapterEntry | None) -> str:
    if adapter is None:
        return "no adapter"
    return f"the adapter {adapter.model_dump(exclude_defaults=True)}"


def _check_files(manifest: Manifest) -> None:
    files = [entry.name for entry in manifest.files]
    deltas = [entry.name for entry in manifest.delta.files] if manifest.delta else []
    holders = {entry.file for entry in manifest.tensors}
    unsafe = sorted(filter(_is_unsafe, {*files, *deltas, *holders}))
    if unsafe:
        raise IntegrityError(f"manifest names a file {unsafe[0]!r}")
    if len({*files, *deltas}) != len(files) + len(deltas):
        raise IntegrityError("manifest names a file twice")
    if not all(map(_is_safetensors, holders)):
        raise IntegrityError(f"manifest names tensors in {sorted(holders)}")
    if manifest.content == "full" and holders != set(filter(_is_safetensors, files)):
        raise IntegrityError(f"tensors are in {sorted(holders)}, but files are {sorted(files)}")


def _is_unsafe(name: str) -> bool:
    """Whether a file of this name would leave the folder, be hidden, or replace one of ours."""
    return not is_plain_file_name(name) or name in RESERVED


def _is_safetensors(name: str) -> bool:
    return name.endswith(".safetensors")


def _check_tensors(tensors: Mapping[str, TensorEntry], signature: Signature) -> None:
    # Hazard: a missing tensor would keep its old value in the engine, which also ignores unknown
    # tensors.
    missing = sorted(signature.tensors.keys() - signature.optional - tensors.keys())
    unknown = sorted(tensors.keys() - signature.tensors.keys())
    if missing or unknown:
        raise IntegrityError(f"tensors missing: {missing[:5]}, not the model's: {unknown[:5]}")
    for name, entry in tensors.items():
        kind, wanted = TensorKind(entry.dtype, tuple(entry.shape)), signature.tensors[name]
        # Earlier releases published these at the precision of the others.
        wide = is_float32(name) and kind == replace(wanted, dtype="F32")
        if kind != wanted and not wide:
            raise IntegrityError(f"tensor {name} is {kind}, the model's is {wanted}")


def check_folder(folder: Path, manifest: Manifest, *, digests_checked: bool = False) -> None:
    """Check sizes, headers and digests of a policy's files.

    Args:
        folder: of the files.
        manifest: of the policy.
        digests_checked: the digests of ``spans_of`` were compared when the files were written. Then
            only tensors outside of these spans are read again.

    Raises:
        IntegrityError: names the file or tensor.
    """
    for entry in manifest.files:
        _check_file(folder / entry.name, entry, digests_checked=digests_checked)
    with ThreadPoolExecutor(threads(), thread_name_prefix="verify") as pool:
        for name in sorted({tensor.file for tensor in manifest.tensors}):
            inside = {tensor.name: tensor for tensor in manifest.tensors if tensor.file == name}
            _check_header(folder / name, inside)
            state = mapped([folder / name])
            if digests_checked:
                checked = _already_checked(folder / name, manifest)
                state = {tensor: flat for tensor, flat in state.items() if tensor not in checked}
            for tensor, digest in codec.digests(state, pool).items():
                if digest != inside[tensor].sha256:
                    raise IntegrityError(f"{name}: tensor {tensor} has digest {digest}")


def _check_file(path: Path, entry: FileEntry, *, digests_checked: bool) -> None:
    if not path.is_file() or path.stat().st_size != entry.size_bytes:
        raise IntegrityError(f"{entry.name} does not have {entry.size_bytes} bytes")
    if digests_checked:
        return
    if entry.sha256 and file_digest(path) != entry.sha256:
        raise IntegrityError(f"{entry.name} does not have digest {entry.sha256}")
    if entry.header_sha256 and _header_digest(path) != entry.header_sha256:
        raise IntegrityError(f"{entry.name}: the header does not match the manifest's digest")


def _already_checked(path: Path, manifest: Manifest) -> set[str]:
    """Tensors that the file's own header places where their digest was compared already."""
    entries = [file for file in manifest.files if file.name == path.name]
    spans = {
        (span.name, span.begin, span.end) for entry in entries for span in spans_of(entry, manifest)
    }
    headers = read_header(path)
    start = data_start(path, headers)
    return {
        name
        for name, header in headers.items()
        if (name, start + header.data_offsets[0], start + header.data_offsets[1]) in spans
    }


def threads() -> int:
    """Number of threads for work that is bound by the processors."""
    return min(MAX_THREADS, len(os.sched_getaffinity(0)))


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
    size = data_start(path, read_header(path))
    with path.open("rb") as file:
        return hashlib.sha256(file.read(size)).hexdigest()
