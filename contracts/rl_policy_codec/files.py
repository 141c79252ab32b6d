"""Safetensors files on disk, whose tensors are mapped to memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np

from rl_contracts.documents.manifest import DTYPE_BYTES
from rl_contracts.model_files import data_start, read_header
from rl_policy_codec.patch import Elements, elements


def mapped(paths: Iterable[Path], *, mode: Literal["r", "r+"] = "r") -> dict[str, Elements]:
    """Map all tensors of safetensors files to memory, as flat elements.

    Args:
        paths: of the files.
        mode: with ``r+`` writes to the elements go to the files.

    Returns:
        One-dimensional elements by tensor name.

    Raises:
        IntegrityError: a file does not match its header.
    """
    state: dict[str, Elements] = {}
    for path in paths:
        headers = read_header(path)
        start = data_start(path, headers)
        has_data = start < path.stat().st_size
        raw = np.memmap(path, np.uint8, mode) if has_data else np.empty(0, np.uint8)
        for name, header in headers.items():
            begin, end = header.data_offsets
            part = raw[start + begin : start + end] if end > begin else b""
            state[name] = elements(part, item_bytes=DTYPE_BYTES[header.dtype])
    return state
