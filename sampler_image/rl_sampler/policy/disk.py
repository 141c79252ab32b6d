"""Room on the disk, asked for before anything is downloaded."""

from __future__ import annotations

import shutil
from pathlib import Path

from rl_contracts.errors import RLError

SPARE_BYTES = 16 << 20
"""Left free for whatever else the pod writes."""


class DiskFullError(RLError):
    """The weights folder cannot hold another policy."""


def free_bytes(folder: Path) -> int:
    """Bytes that can still be written."""
    return shutil.disk_usage(folder).free
