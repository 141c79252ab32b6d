"""Ends what a program has left behind in sessions of its own, which no signal to its group reaches.

Every process that a program starts has the program's environment, which names its episode, unless
it was given another one on purpose: such a process lives until its container ends, and a container
that must not outlive an episode is a pod of its own (``single_use``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

ROUNDS, PAUSE_SECONDS = 100, 0.01
"""A process may start another one while it is being killed."""


def end(variable: str) -> bool:
    """Kill all processes of this user whose environment has a variable; whether none is left.

    Args:
        variable: ``NAME=value``.
    """
    for _ in range(ROUNDS):
        left = list(_having(variable.encode()))
        if not left:
            return True
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE_SECONDS)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return False


def _having(variable: bytes) -> Iterator[int]:
    """Processes with the variable; one that has ended, and waits for its parent, has none."""
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if variable in file.read_bytes().split(b"\0"):
                yield int(file.parent.name)
