"""A pod of programs that serves one episode: its token, and the end of all that a program left."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import hmac
import os
import signal
import time
from pathlib import Path

TOKEN, TOKEN_DIGEST = "token", "token.sha256"
EPISODE_ENDED, POD_USED = 0, 3
"""Exit codes: after the episode, and where an episode may have run in the pod before."""
SET_DUMPABLE, SET_CHILD_SUBREAPER = 4, 36
"""Of ``prctl(2)``."""
FIRST = 1
"""Id of a container's first process; its signal to -1 is for all others of the container."""
END_SECONDS, PAUSE_SECONDS = 5.0, 0.01


def take_token(once: Path, folder: Path) -> bool:
    """Whether this is the first server of the pod; no later one can be.

    The server takes the token away before any program runs. A program may write to its folder, but
    it has never seen the token, and cannot change the digest.

    Args:
        once: folder with the token.
        folder: with its SHA-256, which programs can only read.
    """
    try:
        token = (once / TOKEN).read_bytes()
        (once / TOKEN).unlink()
    except OSError:
        return False
    digest = (folder / TOKEN_DIGEST).read_text().strip()
    return hmac.compare_digest(hashlib.sha256(token).hexdigest(), digest)


def guard() -> None:
    """Let no program read or trace this process, and inherit what programs leave behind.

    Raises:
        OSError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((SET_DUMPABLE, 0), (SET_CHILD_SUBREAPER, 1)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def end_all() -> bool:
    """Kill all that this process or its children started; whether nothing of it is left.

    Children of a process that ends fall to this one, so a few rounds reach all of them. In a
    container one signal reaches all at once, also processes that start others faster than a list
    of them can be read.
    """
    until = time.monotonic() + END_SECONDS
    while children := _children():
        if time.monotonic() > until:
            return False
        for child in [-1] if os.getpid() == FIRST else children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        time.sleep(PAUSE_SECONDS)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    return True


def _children() -> list[int]:
    listed = Path("/proc/self/task").glob("*/children")
    return [int(child) for path in listed for child in path.read_text().split()]
