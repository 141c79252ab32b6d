"""Models whose weights are stored in MXFP4 (gpt-oss), made into the same models in bfloat16.

Blocks of 32 numbers share a scale, a power of two in eight bits (E8M0); each number has four bits
(E2M1): OCP Microscaling Formats 1.0, sections 5.2 and 5.3. So every number is one of bfloat16, and
nothing is rounded. A matrix ``w`` of each expert is stored by rows: ``w_blocks`` uint8
``[E, out, G, 16]``, the even number of a byte in its low bits, and ``w_scales`` uint8
``[E, out, G]``. The model wants ``w`` ``[E, in, out]`` with in = 32 G.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_contracts.disk import check_room, free_bytes
from rl_contracts.documents.manifest import DTYPE_BYTES, PYTORCH, TensorHeader, safetensors_header
from rl_contracts.errors import IntegrityError
from rl_contracts.model_files import INDEX_FILE, read_header, weight_files
from rl_policy_codec.files import mapped

METHOD = "mxfp4"
"""``quant_method`` in ``quantization_config`` of a ``config.json``."""
BLOCKS, SCALES = "_blocks", "_scales"
BLOCK = 32
"""Numbers that share a scale."""
BIAS = 127
"""Of the scale's exponent."""
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Of E2M1, by its low three bits; the fourth is the sign."""
MOST_THREADS = 8

Bytes = NDArray[np.uint8]
Bits = NDArray[np.uint16]
"""Numbers of bfloat16, by their bits."""


def decode(blocks: Bytes, scales: Bytes) -> Bits:
    """The numbers of a matrix.

    Args:
        blocks: ``[out, G, 16]``.
        scales: ``[out, G]``.

    Returns:
        ``[in, out]``, in = 32 G.
    """
    factors = np.ldexp(np.float32(1), scales.astype(np.int32) - BIAS)
    numbers = _pairs()[blocks] * factors[..., None, None]
    bits = (numbers.reshape(len(blocks), -1).view(np.uint32) >> 16).astype(np.uint16)
    return bits.T


def _pairs() -> NDArray[np.float32]:
    """Both numbers of each byte, ``[256, 2]``, the low bits' first."""
    values = np.array([*MAGNITUDES, *(-each for each in MAGNITUDES)], dtype=np.float32)
    low, high = np.arange(256) & 15, np.arange(256) >> 4
    return np.stack([values[low], values[high]], axis=-1)


def is_packed(config: Mapping[str, Any]) -> bool:
    """Whether a model with this ``config.json`` stores weights in MXFP4."""
    section = config.get("quantization_config")
    return isinstance(section, Mapping) and section.get("quant_method") == METHOD


def unpack(folder: Path, *, free: Callable[[Path], int] = free_bytes) -> None:
    """Make a model's folder one in bfloat16; does nothing where it stores none in MXFP4.

    Args:
        folder: with ``config.json`` and safetensors; its files are replaced.
        free: gives the free bytes of a folder's disk.

    Raises:
        DiskFullError: the disk has no room for both forms; the folder is as it was.
        IntegrityError: a file is malformed, or blocks and scales do not belong together.
        ValueError: the config is no JSON.
    """
    config = json.loads((folder / "config.json").read_bytes())
    if not isinstance(config, dict) or not is_packed(config):
        return
    files = weight_files(folder)
    stored = {name: each for path in files for name, each in _tensors(path).items()}
    wanted = {path: _unpacked(path, stored) for path in files}
    check_room(
        sum(each.size for members in wanted.values() for each in members.values()),
        folder,
        what="the model in bfloat16",
        free=free,
    )
    for path, members in wanted.items():
        _write(path.with_name(path.name + ".unpacked"), members)
    for path in files:
        path.with_name(path.name + ".unpacked").rename(path)
    _describe(folder, config, wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A tensor in a file."""

    header: TensorHeader
    data: Bytes
    """Its bytes, mapped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A tensor to be written: a copy, or decoded where ``scales`` are."""

    dtype: str
    shape: list[int]
    source: _Stored
    scales: _Stored | None = None

    @property
    def size(self) -> int:
        """In bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * DTYPE_BYTES[self.dtype]


def _tensors(path: Path) -> dict[str, _Stored]:
    state = mapped([path])
    return {
        name: _Stored(header=header, data=state[name].view(np.uint8))
        for name, header in read_header(path).items()
    }


def _unpacked(path: Path, stored: Mapping[str, _Stored]) -> dict[str, _Wanted]:
    """What a file holds in the end; a matrix stays where its blocks were."""
    members = {}
    for name, header in read_header(path).items():
        matrix = name.removesuffix(SCALES)
        if matrix != name and matrix + BLOCKS in stored:
            continue
        matrix = name.removesuffix(BLOCKS)
        if matrix == name:
            members[name] = _Wanted(
                dtype=header.dtype, shape=list(header.shape), source=stored[name]
            )
            continue
        members[matrix] = _matrix(name, stored[name], stored.get(matrix + SCALES))
    return members


def _matrix(name: str, blocks: _Stored, scales: _Stored | None) -> _Wanted:
    shape = list(blocks.header.shape)
    fits = scales is not None and list(scales.header.shape) == shape[:-1]
    kinds = {blocks.header.dtype, scales.header.dtype if scales is not None else ""}
    if not fits or kinds != {"U8"} or len(shape) != 4 or shape[3] * 2 != BLOCK:
        raise IntegrityError(
            f"{name} is {blocks.header.dtype} {shape}: with its scales that is no MXFP4"
        )
    return _Wanted(
        dtype="BF16", shape=[shape[0], shape[2] * BLOCK, shape[1]], source=blocks, scales=scales
    )


def _write(path: Path, members: Mapping[str, _Wanted]) -> None:
    """A safetensors file; experts are decoded side by side, each straight into the file."""
    described = {name: (each.dtype, each.shape) for name, each in members.items()}
    header = safetensors_header(described, metadata=PYTORCH)
    size = sum(each.size for each in members.values())
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + size)
    if not size:
        return
    whole, end = np.memmap(path, np.uint8, "r+", offset=len(header)), 0
    threads = min(MOST_THREADS, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(threads, thread_name_prefix="unpack") as pool:
        for each in members.values():
            begin, end = end, end + each.size
            _fill(whole[begin:end], each, pool)
    whole.flush()


def _fill(target: Bytes, wanted: _Wanted, pool: ThreadPoolExecutor) -> None:
    if wanted.scales is None:
        target[:] = wanted.source.data
        return
    blocks = wanted.source.data.reshape(wanted.source.header.shape)
    scales = wanted.scales.data.reshape(wanted.scales.header.shape)
    matrices = target.view(np.uint16).reshape(wanted.shape)

    def decoded(expert: int) -> None:
        matrices[expert] = decode(blocks[expert], scales[expert])

    for _ in pool.map(decoded, range(len(matrices))):
        pass  # raises what a thread has raised


def _describe(
    folder: Path, config: dict[str, Any], wanted: Mapping[Path, Mapping[str, _Wanted]]
) -> None:
    """Write config and index for what the files hold now."""
    del config["quantization_config"]
    config.pop("torch_dtype", None)  # the name before transformers 5
    config["dtype"] = "bfloat16"
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    index = folder / INDEX_FILE
    if index.is_file():
        places = {name: path.name for path, members in wanted.items() for name in members}
        size = sum(each.size for members in wanted.values() for each in members.values())
        content = {"metadata": {"total_size": size}, "weight_map": dict(sorted(places.items()))}
        index.write_text(json.dumps(content, indent=2) + "\n")
