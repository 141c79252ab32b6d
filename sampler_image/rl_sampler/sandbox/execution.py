"""Runs a program in a child process and reads its output until it ends."""

from __future__ import annotations

import fcntl
import os
import secrets
import selectors
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from rl_sampler.sandbox import child
from rl_sampler.sandbox.child import CONFINED
from rl_sampler.sandbox.wire import MAX_OUTPUT_BYTES, Ending, Outcome, Program

WALL_FACTOR = 10
"""Wall seconds per second of processor time, besides waits for a processor. A program that uses
them up sleeps, or waits for something that never happens."""
POLL_SECONDS = 0.05
CHUNK = 1 << 16
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


@dataclass(slots=True)
class _ChildOutput:
    """Output of a child."""

    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    report: bytearray = field(default_factory=bytearray)
    in_time: bool = True


def execute(
    program: Program, *, rules: int | None = None, wall_factor: int = WALL_FACTOR
) -> Outcome:
    """Run a program to its end, in a fork of this process.

    This process must be hidden and have a single thread.

    Args:
        program: the program and its limits.
        rules: descriptor of the Landlock ruleset; None where the kernel has none.
        wall_factor: wall seconds per second of processor time.

    Raises:
        SyntaxError, ValueError, MemoryError, RecursionError: as ``compiled``, of the tests.
    """
    tests = None if program.tests is None else child.compiled_tests(program.tests)
    mark = secrets.token_hex(16)
    me = os.getpid()
    stdin = _input(program.stdin.encode())
    (output, to_output), (errors, to_errors), (report, to_report) = (os.pipe() for _ in range(3))
    pid = os.fork()
    if pid == 0:
        child.end_with(me)
        outputs = (to_output, to_errors, to_report)
        child.main(program, mark, tests=tests, stdin=stdin, outputs=outputs, rules=rules)
    for given in (stdin, to_output, to_errors, to_report):
        os.close(given)
    try:
        heard = _listen(pid, (output, errors, report), seconds=wall_factor * program.seconds)
    finally:
        os.kill(pid, signal.SIGKILL)
        _, waited, used = os.wait4(pid, 0)
        for reader in (output, errors, report):
            os.close(reader)
    status = os.waitstatus_to_exitcode(waited)
    overspent = used.ru_utime + used.ru_stime >= program.seconds
    return Outcome(
        ending=_ending(status, heard, overspent=overspent),
        output=heard.output.decode(errors="replace"),
        errors=heard.errors.decode(errors="replace"),
        passed=status == 0 and bytes(heard.report) == CONFINED + mark.encode(),
    )


def _input(content: bytes) -> int:
    """Descriptor of a file in memory that nobody can change; its size is known, unlike a pipe's."""
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    return descriptor


def _listen(pid: int, readers: tuple[int, int, int], *, seconds: float) -> _ChildOutput:
    """Read until the child has ended or its time is over.

    A child that closes its output runs on until its time is over.
    """
    output, deadline = _ChildOutput(), time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for reader, heard in zip(
            readers, (output.output, output.errors, output.report), strict=True
        ):
            selector.register(reader, selectors.EVENT_READ, heard)
        while selector.get_map() or not _ended(pid):
            left = deadline + _queued(pid) - time.monotonic()
            if left <= 0:
                output.in_time = False
                return output
            pause = max(left, POLL_SECONDS) if selector.get_map() else POLL_SECONDS
            for key, _ in selector.select(pause):
                chunk = os.read(key.fd, CHUNK)
                if not chunk:
                    selector.unregister(key.fd)
                key.data.extend(chunk[: MAX_OUTPUT_BYTES - len(key.data)])
    return output


def _ending(status: int, output: _ChildOutput, *, overspent: bool) -> Ending:
    if not output.report.startswith(CONFINED):
        return "lost"
    if not output.in_time:
        return "wall"
    if status == 0:
        return "ended"
    if status == -signal.SIGKILL:  # which it cannot send to itself
        return "processor" if overspent else "lost"
    return "processor" if status == -signal.SIGXCPU else "failed"


def _ended(pid: int) -> bool:
    """Whether a child has ended; it is not reaped here, since reaping it returns its times."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _queued(pid: int) -> float:
    """Seconds for which a single-threaded process waited for a processor."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0  # this kernel has no such counters
