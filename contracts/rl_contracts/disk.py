"""Checks free disk space before a download."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from rl_contracts.errors import RLError

SPARE_BYTES = 16 << 20
"""Kept free for other files of the pod."""


class DiskFullError(RLError):
    """A folder has too little free space for a file."""


def free_bytes(folder: Path) -> int:
    """Bytes that can still be written to the file system of ``folder``."""
    return shutil.disk_usage(folder).free


def check_room(
    needed: int, folder: Path, *, what: str, free: Callable[[Path], int] = free_bytes
) -> None:
    """Check that a folder has enough free space, with SPARE_BYTES to spare.

    Args:
        needed: bytes to write.
        folder: where to write them.
        what: what is written, for the message, e.g. ``a model``.
        free: returns the free bytes of a folder.

    Raises:
        DiskFullError: too little space; the message has both numbers.
    """
    available = free(folder)
    if available < needed + SPARE_BYTES:
        raise DiskFullError(
            f"{what} of {needed} bytes does not fit into {folder}: {available} bytes are free, "
            f"{SPARE_BYTES} of them in reserve"
        )
