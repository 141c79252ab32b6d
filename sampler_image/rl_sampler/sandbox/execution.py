"""Runs a program in a child process and reads its output until it ends."""

from __future__ import annotations

import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from rl_sampler.sandbox.child import CONFINED
from rl_sampler.sandbox.wire import MAX_OUTPUT_BYTES, Ending, Outcome, Program

WALL_FACTOR = 10
"""Wall seconds per second of processor time, besides waits for a processor. A program that uses
them up sleeps, or waits for something that never happens."""
POLL_SECONDS = 0.05
ROOT = Path(__file__).parents[2]
START = (
    "import sys; sys.path.append(sys.argv.pop()); from rl_sampler.sandbox.child import main; "
    "sys.path.pop(); main()"
)
ENVIRONMENT = {"LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
CHUNK = 1 << 16


@dataclass(slots=True)
class _ChildOutput:
    """Output of a child."""

    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    report: bytearray = field(default_factory=bytearray)
    in_time: bool = True


def execute(program: Program, *, wall_factor: int = WALL_FACTOR) -> Outcome:
    """Run a program to its end.

    Args:
        program: the program and its limits.
        wall_factor: wall seconds per second of processor time.
    """
    mark = secrets.token_hex(16)
    reads, writes = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-X", "utf8", "-c", START, str(writes), str(ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            cwd="/",
            pass_fds=(writes,),
            start_new_session=True,
        )
    except OSError:
        os.close(reads)
        raise
    finally:
        os.close(writes)
    try:
        _ask(process, program, mark)
        output = _listen(process, reads, seconds=wall_factor * program.seconds)
    finally:
        os.close(reads)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        os.kill(process.pid, signal.SIGKILL)  # not Popen.kill, which would reap an ended child
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    overspent = used.ru_utime + used.ru_stime >= program.seconds
    return Outcome(
        ending=_ending(process.returncode, output, overspent=overspent),
        output=output.output.decode(errors="replace"),
        errors=output.errors.decode(errors="replace"),
        passed=process.returncode == 0 and bytes(output.report) == CONFINED + mark.encode(),
    )


def _ask(process: subprocess.Popen[bytes], program: Program, mark: str) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps({**program.model_dump(), "mark": mark}).encode())
        process.stdin.close()
    except BrokenPipeError:
        return  # the child ended before it read: its output and status tell why


def _listen(process: subprocess.Popen[bytes], report: int, *, seconds: float) -> _ChildOutput:
    """Read until the child has ended or its time is over.

    A child that closes its output runs on until its time is over.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    output, deadline = _ChildOutput(), time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout.fileno(), selectors.EVENT_READ, output.output)
        selector.register(process.stderr.fileno(), selectors.EVENT_READ, output.errors)
        selector.register(report, selectors.EVENT_READ, output.report)
        while selector.get_map() or not _ended(process.pid):
            left = deadline + _queued(process.pid) - time.monotonic()
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
