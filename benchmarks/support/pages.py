"""Pages of files in the kernel's memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)


def drop(path: Path) -> None:
    """Have the kernel drop a file's pages; they are written to the disk first."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def share_in_memory(path: Path) -> float:
    """The share of a file's pages that the kernel holds, by mincore(2)."""
    size = path.stat().st_size
    held = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with (
        path.open("rb") as file,
        mmap.mmap(
            file.fileno(), size, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE
        ) as mapped,
    ):
        start = (ctypes.c_char * 1).from_buffer(mapped)
        address = ctypes.c_void_p(ctypes.addressof(start))
        failed = LIBC.mincore(address, ctypes.c_size_t(size), held)
        del start
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(page & 1 for page in held) / len(held)
