"""An attack: a program, and how it must end.

Names in programs: ``attempt(f, *args)`` prints ``refused`` where f raises OSError, else what it
returned; ``call(number, *args)`` is a system call of x86_64. ``CANARY`` is a file of the sandbox's
own user, ``SERVER`` and ``VICTIM`` are processes of that user, ``SOCKET`` is the server's socket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PRELUDE = """
import ctypes, os, sys
_libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    padded = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = _libc.syscall(ctypes.c_long(number), *padded)
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return result
def attempt(what, *arguments, **named):
    try:
        result = what(*arguments, **named)
    except (OSError, RuntimeError, ImportError) as error:
        print("refused" if not isinstance(error, RuntimeError) or "thread" in str(error) else error)
    else:
        print("done", repr(result)[:200])
def read(path):
    with open(path, "rb") as file:
        return file.read(4096)
"""
Ending = Literal["refused", "ended", "failed", "processor", "wall", "limit"]


@dataclass(frozen=True, slots=True)
class Attack:
    """A program and how it must end."""

    name: str
    code: str
    ending: Ending = "refused"
    """``refused``: each attempt prints ``refused``, and the program ends by itself. ``limit``: its
    time ends, of the processor or, where the handler is slow to read, of the clock."""
    output: str | None = None
    """Exact output; None: any, but never a secret."""
    tests: str | None = None


def refused(prefix: str, *attempts: str) -> list[Attack]:
    """An attack for each attempt; those of a kind share a prefix in their names."""
    return [Attack(f"{prefix}: {each}", f"attempt({each})") for each in attempts]
