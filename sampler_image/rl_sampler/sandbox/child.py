"""The process of one program: gives up all it does not need, then runs it.

One process and one thread, no network, no file but for reading, limits on time and memory. It
reads a request (``Program`` and a ``mark``) from standard input to its end. To the descriptor named
by its first argument it writes CONFINED, and the mark when the tests are through. It is started
for each program: nothing of another one is in its memory.
"""

from __future__ import annotations

import ctypes
import io
import json
import linecache
import os
import resource
import sys
import traceback
from types import ModuleType, TracebackType
from typing import Any

from rl_sampler.sandbox import syscalls

PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 4, 22, 38
SECCOMP_MODE_FILTER = 2
OPEN_FILES = 64
NOTHING_OF = (
    resource.RLIMIT_CORE,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_MEMLOCK,
    resource.RLIMIT_MSGQUEUE,
    resource.RLIMIT_NPROC,
)
SPARE_SECONDS = 1
"""Between the signal that ends a program and the one that it cannot catch."""
CONFINED = b"confined "
CODE, TESTS = "<program>", "<tests>"


def confine(*, seconds: int, megabytes: int) -> None:
    """Give up for good what no program needs.

    Args:
        seconds: of processor time, what was used until now included.
        megabytes: of address space.

    Raises:
        OSError: the kernel does not take the filter.
    """
    hide()
    limits = {
        resource.RLIMIT_CPU: (seconds, seconds + SPARE_SECONDS),
        resource.RLIMIT_AS: (megabytes << 20, megabytes << 20),
        resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
        **dict.fromkeys(NOTHING_OF, (0, 0)),
    }
    for limit, bounds in limits.items():
        resource.setrlimit(limit, bounds)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    steps = syscalls.program(os.getpid())
    buffer = ctypes.create_string_buffer(steps, len(steps))
    filter_ = _Filter(len(steps) // syscalls.STEP_BYTES, ctypes.addressof(buffer))
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(filter_))


def hide() -> None:
    """Close this process's memory and environment to others of its user."""
    _prctl(PR_SET_DUMPABLE, 0)


class _Filter(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def _prctl(option: int, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    given = [ctypes.c_ulong(one) for one in (*arguments, 0, 0, 0, 0)[:4]]
    if library.prctl(ctypes.c_int(option), *given) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def run(request: dict[str, Any], *, report: int) -> None:
    """Run a confined program; its exceptions and exits are the interpreter's to end with."""
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["program"]
    sys.stdin = io.TextIOWrapper(io.BytesIO(request["stdin"].encode()), encoding="utf-8")
    parts = [(CODE, request["code"])]
    if request["tests"] is not None:
        parts.append((TESTS, request["tests"]))
    for name, source in parts:
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), module.__dict__)
    if request["tests"] is not None:
        os.write(report, request["mark"].encode())


def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an exception as the interpreter does, without the lines of this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename not in (CODE, TESTS):
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


def main() -> None:
    """Read the request, confine, run."""
    hide()  # before anything is known here that others may not know
    request = json.load(sys.stdin.buffer)
    confine(seconds=request["seconds"], megabytes=request["megabytes"])
    report = int(sys.argv[1])
    os.write(report, CONFINED)
    sys.excepthook = tell
    run(request, report=report)
