"""The process of a program: drops all rights that it does not need, then runs the program.

A single process with a single thread, without network, with read-only files, and with limits on
time and memory. It is forked from a process that is hidden already (``hide``), so other processes
can read nothing of it at any moment; an ``exec`` would make it readable until it hides again. To
the descriptor REPORT it writes CONFINED, and the mark once the tests have passed. Each program has
a new process, so no memory is shared between programs.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import linecache
import os
import platform
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType, TracebackType
from typing import NoReturn

from rl_sampler.sandbox import landlock, syscalls
from rl_sampler.sandbox.wire import Program

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
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
INPUT, REPORT = 0, 3
FAILED = 1
CODE, TESTS = "<program>", "<tests>"


@dataclass(frozen=True, slots=True)
class Tests:
    """A record's tests, compiled before the program has its limits, which are not for them."""

    code: CodeType
    taken_bytes: int
    """Address space that compiling them took, which the program has besides its own."""


def compiled(name: str, source: str) -> CodeType:
    """Compile a source, which tracebacks show under its name.

    Raises:
        SyntaxError, ValueError: it is not Python.
        MemoryError, RecursionError: it is too long or nested too deep.
    """
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return compile(source, name, "exec")


def compiled_tests(source: str) -> Tests:
    """Compile tests; raises as ``compiled``."""
    before = _address_space()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a test's style: nobody is asked to mend it
        code = compiled(TESTS, source)
    return Tests(code, max(0, _address_space() - before))


def _address_space() -> int:
    """Bytes of this process's address space."""
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[0]) * resource.getpagesize()


def confine(*, seconds: int, address_space: int, rules: int | None) -> None:
    """Drop all rights that programs do not need; this cannot be undone.

    Args:
        seconds: limit of processor time, with the time used so far.
        address_space: its limit, in bytes.
        rules: descriptor of the Landlock ruleset, which is closed; None: the kernel has none.

    Raises:
        OSError: the kernel refused the filter or the rules.
    """
    limits = {
        resource.RLIMIT_CPU: (seconds, seconds + SPARE_SECONDS),
        resource.RLIMIT_AS: (address_space, address_space),
        resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
        **dict.fromkeys(NOTHING_OF, (0, 0)),
    }
    for limit, bounds in limits.items():
        resource.setrlimit(limit, bounds)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    if rules is not None:
        landlock.restrict(rules)
        os.close(rules)
    steps = syscalls.program(os.getpid(), machine=platform.machine())
    buffer = ctypes.create_string_buffer(steps, len(steps))
    filter_ = _Filter(len(steps) // syscalls.STEP_BYTES, ctypes.addressof(buffer))
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(filter_))


def hide() -> None:
    """Hide memory, environment and descriptors from other processes of the same user.

    A fork inherits it; an exec undoes it.
    """
    _prctl(PR_SET_DUMPABLE, 0)


def end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(FAILED)


class _Filter(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def _prctl(option: int, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    if library.prctl(ctypes.c_int(option), *padded) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def run(program: Program, mark: str, tests: Tests | None) -> None:
    """Run a confined program, and then its tests.

    Raises:
        BaseException: whatever the program or its tests raise.
    """
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["program"]
    sys.stdin = open(INPUT, encoding="utf-8", closefd=False)  # noqa: SIM115 - as the interpreter's
    exec(compiled(CODE, program.code), module.__dict__)
    if tests is not None:
        exec(tests.code, module.__dict__)
        os.write(REPORT, mark.encode())


def print_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an exception as the interpreter does, without the lines of this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename not in (CODE, TESTS):
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


def main(
    program: Program,
    mark: str,
    *,
    tests: Tests | None,
    stdin: int,
    outputs: tuple[int, int, int],
    rules: int | None,
) -> NoReturn:
    """Confine this forked process, run the program in it, and end it as the interpreter would.

    Args:
        program: the program.
        mark: is reported once the tests have passed.
        tests: the program's, compiled.
        stdin: descriptor that becomes standard input.
        outputs: descriptors that become standard output, standard error and REPORT.
        rules: descriptor of the Landlock ruleset; None where the kernel has none.
    """
    status = FAILED
    try:
        rules = _leave_server((stdin, *outputs), rules)
        address_space = (program.megabytes << 20) + (0 if tests is None else tests.taken_bytes)
        confine(seconds=program.seconds, address_space=address_space, rules=rules)
        os.write(REPORT, CONFINED)
        status = _status(program, mark, tests)
    except OSError:
        traceback.print_exc()  # the handler logs it
    finally:
        os._exit(status)


def _leave_server(streams: Sequence[int], rules: int | None) -> int | None:
    """Give up what the server has: descriptors, handlers, folder, session.

    Returns:
        The descriptor of the ruleset, which has moved.
    """
    os.setsid()
    os.chdir("/")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    atexit._clear()
    kept = [*streams, *([] if rules is None else [rules])]
    # First out of the way: a target may be the source of a later one.
    high = [fcntl.fcntl(number, fcntl.F_DUPFD, len(kept)) for number in kept]
    for target, number in enumerate(high):
        os.dup2(number, target)
    os.closerange(len(kept), os.sysconf("SC_OPEN_MAX"))
    return None if rules is None else len(kept) - 1


def _status(program: Program, mark: str, tests: Tests | None) -> int:
    """Run a program; exit status as of an interpreter that runs it."""
    sys.excepthook = print_exception
    try:
        run(program, mark, tests)
        status = 0
    except SystemExit as left:
        status = _exit_status(left.code)
    except BaseException:  # noqa: BLE001 - the interpreter's end: whatever a program raises
        sys.excepthook(*sys.exc_info())
        status = FAILED
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    return status


def _exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return FAILED
