"""Errors that a person can act on; the command line prints them without a traceback."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path

TAIL_LINES = 25
FULL = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (errno.EACCES, errno.EPERM)


class LocalError(Exception):
    """An error that the user can fix; the message says what failed and what to do."""


class CommandFailedError(LocalError):
    """A program failed or exceeded its time limit; the message has the last lines of its log."""

    def __init__(self, label: str, reason: str, log: Path) -> None:
        super().__init__(f"{label}: {reason}\nlast lines of {log}:\n{tail(log)}")


class DeadlinePassedError(LocalError):
    """A wait exceeded its time limit; the message names what was awaited."""


def sentence(error: OSError | subprocess.SubprocessError, *folders: Path) -> str:
    """What failed, where, and what to do, of an error that the code does not expect.

    Args:
        error: of the operating system or of a program.
        folders: those that this tool fills.
    """
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{where}; {_remedy(error, folders)}"
    again = "see what it printed, and run the command again"
    if isinstance(error, subprocess.CalledProcessError):
        return f"`{_start(error.cmd)} …` ended with status {error.returncode}; {again}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"`{_start(error.cmd)} …` did not end within {error.timeout:.0f} s; {again}"
    return f"{error}; {again}"


def _remedy(error: OSError, folders: tuple[Path, ...]) -> str:
    if error.errno in FULL:
        named = " ".join(map(str, folders))
        return f"free some space (`df -h {named}` shows what is left), and run the command again"
    if error.errno in REFUSED:
        return "run the command as a user who may do this, or with sudo"
    if error.errno == errno.EROFS:
        return "make this file system writable, and run the command again"
    if isinstance(error, ConnectionError | TimeoutError):
        return "start what does not answer, the local cluster with `up`, and run the command again"
    return "correct this, and run the command again"


def _start(command: object) -> str:
    words = command if isinstance(command, list | tuple) else [command]
    return " ".join(map(str, words[:4]))


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The last ``lines`` lines of ``log``, indented, or a remark when it is missing or empty."""
    if not log.exists():
        return "  (no log)"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        text = file.read().decode(errors="replace")
    return "\n".join(f"  {line}" for line in text.splitlines()[-lines:]) or "  (empty)"
