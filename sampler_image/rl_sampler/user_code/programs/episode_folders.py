"""The folders of episodes' programs, and the removal of those whose server was killed.

A container that is restarted keeps what it wrote, so a server removes at its start what an earlier
one could not. Each server holds locks on the folders that it uses; they end with its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX, NEW_PREFIX = "episode-", "new-episode-"


def make() -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock until it is closed."""
    new = Path(tempfile.mkdtemp(prefix=NEW_PREFIX))
    lock = _lock(new)
    # Only now is it one that a server may take for another one's leftover.
    return new.rename(new.with_name(new.name.replace(NEW_PREFIX, PREFIX, 1))), lock


def remove_left() -> int:
    """Remove the folders that no server uses; returns their number."""
    removed = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # in use, or another user's
            lock = _lock(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
            removed += 1
    return removed


def _lock(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
