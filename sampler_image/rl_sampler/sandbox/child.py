"""The process of a program: drops all rights that it does not need, then runs the program.

A single process with a single thread, without network, with read-only files, and with limits on
time and memory. It reads a request (``Program`` and a ``mark``) from standard input. To the
descriptor of its first argument it writes CONFINED, and the mark once the tests have passed. Each
program has a new process, so no memory is shared between programs.
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
"""Between SIGXCPU, which a program can catch, and SIGKILL, which it cannot."""
CONFINED = b"confined "
CODE, TESTS = "<program>", "<tests>"


def confine(*, seconds: int, megabytes: int) -> None:
    """Drop all rights that programs do not need; this cannot be undone.

    Args:
        seconds: limit of processor time, with the time used so far.
        megabytes: limit of the address space, in MiB.

    Raises:
        OSError: the kernel refused the filter.
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
    """Hide this process's memory and environment from other processes of its user."""
    _prctl(PR_SET_DUMPABLE, 0)


class _Filter(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def _prctl(option: int, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    if library.prctl(ctypes.c_int(option), *padded) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def run(request: dict[str, Any], *, report: int) -> None:
    """Run a confined program; its exceptions and exits end the interpreter."""
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


def print_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an exception as the interpreter does, without the lines of this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename not in (CODE, TESTS):
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


def main() -> None:
    """Read the request, confine, run."""
    hide()  # first: the request is secret from other programs
    request = json.load(sys.stdin.buffer)
    confine(seconds=request["seconds"], megabytes=request["megabytes"])
    report = int(sys.argv[1])
    os.write(report, CONFINED)
    sys.excepthook = print_exception
    run(request, report=report)
