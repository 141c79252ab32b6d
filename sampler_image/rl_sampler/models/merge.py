"""Merges a LoRA adapter into the model that it was trained beside (arXiv 2106.09685, section 4.1).

The result is what the trainer exports: every weight in the precision of training, computed in
float32. One tensor is in memory at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rl_contracts.adapters import PARTS, WEIGHT, tensor_name
from rl_contracts.disk import check_room
from rl_contracts.documents.manifest import (
    DTYPE_BYTES,
    PYTORCH,
    AdapterEntry,
    TensorHeader,
    safetensors_header,
)
from rl_contracts.model_files import is_float32, read_header, weight_files
from rl_contracts.spec.training.training import Precision
from rl_policy_codec.files import mapped
from rl_policy_codec.patch import Elements

Float32: TypeAlias = NDArray[np.float32]

TYPES: Mapping[Precision, str] = {"BF16": "BF16", "FP16": "F16", "FP32": "F32"}
"""Names of ``training.precision`` in safetensors files."""
FLOATS = ("BF16", "F16", "F32")


def merge(
    base: Path, adapter: Path, entry: AdapterEntry, folder: Path, *, precision: Precision
) -> None:
    """Write the files of a model with an adapter merged into it, under the model's file names.

    Args:
        base: the model, in Hugging Face layout.
        adapter: in PEFT's layout; verified against ``entry`` and the model.
        entry: of the adapter.
        folder: where the files are written.
        precision: of the written weights.

    Raises:
        DiskFullError: there is no room for the model.
        IntegrityError: a file is malformed.
    """
    files, wanted = weight_files(base), TYPES[precision]
    check_room(
        sum(_written_bytes(read_header(path), wanted) for path in files),
        folder,
        what="a merged model",
    )
    factors = _Factors(adapter, entry)
    for path in files:
        _write_merged(path, factors, folder / path.name, wanted=wanted)


class _Factors:
    """The matrices of an adapter by layer."""

    def __init__(self, folder: Path, entry: AdapterEntry) -> None:
        files = sorted(folder.glob("*.safetensors"))
        self._state = mapped(files)
        self._headers = {name: each for path in files for name, each in read_header(path).items()}
        self._scaling = np.float32(entry.alpha / entry.rank)

    def added(self, tensor: str) -> Float32 | None:
        """``alpha / rank · B A`` of a weight; None where it has no adapter."""
        first, second = (tensor_name(tensor.removesuffix(WEIGHT), part) for part in PARTS)
        if not tensor.endswith(WEIGHT) or first not in self._headers:
            return None
        change: Float32 = self._scaling * (self._matrix(second) @ self._matrix(first))
        return change

    def _matrix(self, name: str) -> Float32:
        header = self._headers[name]
        return as_float32(self._state[name], header.dtype).reshape(header.shape)


def _types(headers: Mapping[str, TensorHeader], wanted: str) -> dict[str, str]:
    """The types in which tensors are written."""
    return {name: _type(name, header, wanted) for name, header in headers.items()}


def _type(name: str, header: TensorHeader, wanted: str) -> str:
    if header.dtype not in FLOATS:
        return header.dtype
    return "F32" if is_float32(name) else wanted


def _written_bytes(headers: Mapping[str, TensorHeader], wanted: str) -> int:
    return sum(
        DTYPE_BYTES[dtype] * math.prod(headers[name].shape)
        for name, dtype in _types(headers, wanted).items()
    )


def _write_merged(path: Path, factors: _Factors, target: Path, *, wanted: str) -> None:
    read, state = read_header(path), mapped([path])
    types = _types(read, wanted)
    # The widest first, so that every tensor is aligned.
    headers = {
        name: read[name] for name in sorted(read, key=lambda each: -DTYPE_BYTES[types[each]])
    }
    with target.open("wb") as file:
        described = {name: (types[name], header.shape) for name, header in headers.items()}
        file.write(safetensors_header(described, metadata=PYTORCH))
        for name, header in headers.items():
            file.write(_merged(state[name], header, factors.added(name), wanted=types[name]))


def _merged(raw: Elements, header: TensorHeader, change: Float32 | None, *, wanted: str) -> bytes:
    if change is None and header.dtype == wanted:
        return raw.tobytes()
    values = as_float32(raw, header.dtype)
    if change is not None:
        values = values + change.ravel()
    return from_float32(values, wanted).tobytes()


def as_float32(raw: Elements, dtype: str) -> Float32:
    """Elements of a safetensors file as float32 numbers, exactly.

    Args:
        raw: as unsigned integers of the type's size.
        dtype: ``BF16``, ``F16`` or ``F32``.
    """
    if dtype == "BF16":
        return (raw.astype("<u4") << np.uint32(16)).view("<f4")
    return raw.view("<f2" if dtype == "F16" else "<f4").astype("<f4")


def from_float32(values: Float32, dtype: str) -> Elements:
    """The nearest numbers of a type, ties to even, as unsigned integers; the inverse."""
    if dtype == "F32":
        return np.ascontiguousarray(values, "<f4").view("<u4")
    if dtype == "F16":
        with np.errstate(over="ignore"):  # infinite, as torch has it
            return values.astype("<f2").view("<u2")
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + (np.uint32(0x7FFF) + odd)) >> np.uint32(16)
    rounded = np.where(np.isnan(values), (bits >> np.uint32(16)) | np.uint32(0x40), rounded)
    return rounded.astype("<u2")
