"""Delta files: patches in a safetensors file, compressed as a single zstd frame.

The patch of the elements from ``start`` on of a tensor is stored as two U8 tensors,
``<tensor>@<start>:gaps`` and ``<tensor>@<start>:values``, each [bytes of an element, elements].
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import zstandard

from rl_contracts.documents.manifest import (
    HEADER_LENGTH_BYTES,
    parse_safetensors_header,
    safetensors_header,
)
from rl_contracts.errors import IntegrityError
from rl_policy_codec.patch import Patch, Planes

LEVEL = 1
"""A higher level saves little: most of a delta is low bytes, which are nearly random."""


class Place(NamedTuple):
    """The tensor and the first element that a patch changes."""

    tensor: str
    start: int
    """First element of the patched range."""


def pack(patches: Mapping[Place, Patch]) -> bytes:
    """Encode patches as a delta file."""
    described: dict[str, tuple[str, tuple[int, ...]]] = {}
    parts = []
    for place, patch in patches.items():
        for part, planes in (("gaps", patch.gaps), ("values", patch.values)):
            described[f"{place.tensor}@{place.start}:{part}"] = ("U8", planes.shape)
            parts.append(planes.data)
    body = b"".join([safetensors_header(described), *parts])
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True)
    return compressor.compress(body)


def unpack(data: bytes, *, limit_bytes: int) -> dict[Place, Patch]:
    """Decode the patches of a delta file.

    Args:
        data: the whole file.
        limit_bytes: largest decompressed size; a larger file is rejected before decompression.

    Raises:
        IntegrityError: the file is malformed or too large.
    """
    body = _decompressed(data, limit_bytes=limit_bytes)
    entries = parse_safetensors_header(body, file_bytes=len(body))
    content = np.frombuffer(body, np.uint8)
    first = HEADER_LENGTH_BYTES + struct.unpack("<Q", body[:HEADER_LENGTH_BYTES])[0]
    parts_by_place: dict[Place, dict[str, Planes]] = {}
    for name, entry in entries.items():
        begin, end = (first + offset for offset in entry.data_offsets)
        if entry.dtype != "U8" or len(entry.shape) != 2:
            raise IntegrityError(f"{name} is {entry.dtype} {entry.shape}, not byte planes")
        place, part = _parse(name)
        parts_by_place.setdefault(place, {})[part] = content[begin:end].reshape(entry.shape)
    for place, parts in parts_by_place.items():
        if parts.keys() != {"gaps", "values"}:
            raise IntegrityError(f"patch of {place} has only {sorted(parts)}")
    return {place: Patch(parts["gaps"], parts["values"]) for place, parts in parts_by_place.items()}


def _decompressed(data: bytes, *, limit_bytes: int) -> bytes:
    try:
        size = zstandard.get_frame_parameters(data).content_size
        if size > limit_bytes:
            raise IntegrityError(f"delta of {size} bytes, at most {limit_bytes} were expected")
        body = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise IntegrityError(f"not a zstd frame: {error}") from error
    if len(body) != size:
        raise IntegrityError(f"delta has {len(body)} bytes, its frame says {size}")
    return body


def _parse(name: str) -> tuple[Place, str]:
    rest, _, part = name.rpartition(":")
    tensor, _, start = rest.rpartition("@")
    if part not in {"gaps", "values"} or not start.isdecimal():
        raise IntegrityError(f"{name!r} is not a part of a patch")
    return Place(tensor, int(start)), part
