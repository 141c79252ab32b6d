"""Room on the disk, asked for before anything is downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from rl_contracts.errors import RLError

SPARE_BYTES = 16 << 20
"""Left free for whatever else the pod writes."""


class DiskFullError(RLError):
    """A folder has no room for what is to be written."""


def free_bytes(folder: Path) -> int:
    """Bytes that can still be written."""
    return shutil.disk_usage(folder).free


def check_room(
    needed: int, folder: Path, *, what: str, free: Callable[[Path], int] = free_bytes
) -> None:
    """See that a folder has room.

    Args:
        needed: bytes.
        folder: where to.
        what: that is to be written, e.g. ``a model``.
        free: bytes that can still be written into a folder.

    Raises:
        DiskFullError: with the numbers.
    """
    available = free(folder)
    if available < needed + SPARE_BYTES:
        raise DiskFullError(
            f"{what} of {needed} bytes does not fit into {folder}: {available} bytes are free, "
            f"{SPARE_BYTES} of them in reserve"
        )
