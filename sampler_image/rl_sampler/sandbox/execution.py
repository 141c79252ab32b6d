"""One program from request to outcome: a child, its output, its end."""

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
from rl_sampler.sandbox.wire import MOST_OUTPUT_BYTES, Ending, Outcome, Program

WALL_FACTOR = 10
"""Seconds of the clock for each of the processor, beside those in its queue: who uses up these
sleeps, or waits for what never comes."""
LOOK_SECONDS = 0.05
ROOT = Path(__file__).parents[2]
START = (
    "import sys; sys.path.append(sys.argv.pop()); from rl_sampler.sandbox.child import main; "
    "sys.path.pop(); main()"
)
ENVIRONMENT = {"LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
CHUNK = 1 << 16


@dataclass(slots=True)
class _Said:
    """What came out of a child."""

    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    report: bytearray = field(default_factory=bytearray)
    in_time: bool = True


def execute(program: Program, *, wall_factor: int = WALL_FACTOR) -> Outcome:
    """Run a program to its end.

    Args:
        program: what to run.
        wall_factor: seconds of the clock for each second of processor time.
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
        said = _listen(process, reads, seconds=wall_factor * program.seconds)
    finally:
        os.close(reads)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        os.kill(process.pid, signal.SIGKILL)  # not Popen's, which reaps one that has ended
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    overspent = used.ru_utime + used.ru_stime >= program.seconds
    return Outcome(
        ending=_ending(process.returncode, said, overspent=overspent),
        output=said.output.decode(errors="replace"),
        errors=said.errors.decode(errors="replace"),
        passed=process.returncode == 0 and bytes(said.report) == CONFINED + mark.encode(),
    )


def _ask(process: subprocess.Popen[bytes], program: Program, mark: str) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps({**program.model_dump(), "mark": mark}).encode())
        process.stdin.close()
    except BrokenPipeError:
        return  # it ended before it read: what it said and its status tell why


def _listen(process: subprocess.Popen[bytes], report: int, *, seconds: float) -> _Said:
    """Read until the child has ended or its time is over.

    Closing its output is not ending: who does that goes on until its time is over.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    said, deadline = _Said(), time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout.fileno(), selectors.EVENT_READ, said.output)
        selector.register(process.stderr.fileno(), selectors.EVENT_READ, said.errors)
        selector.register(report, selectors.EVENT_READ, said.report)
        while selector.get_map() or not _ended(process.pid):
            left = deadline + _queued(process.pid) - time.monotonic()
            if left <= 0:
                said.in_time = False
                return said
            pause = max(left, LOOK_SECONDS) if selector.get_map() else LOOK_SECONDS
            for key, _ in selector.select(pause):
                got = os.read(key.fd, CHUNK)
                if not got:
                    selector.unregister(key.fd)
                key.data.extend(got[: MOST_OUTPUT_BYTES - len(key.data)])
    return said


def _ending(status: int, said: _Said, *, overspent: bool) -> Ending:
    if not said.report.startswith(CONFINED):
        return "lost"
    if not said.in_time:
        return "wall"
    if status == 0:
        return "ended"
    if status == -signal.SIGKILL:  # which it cannot send to itself
        return "processor" if overspent else "lost"
    return "processor" if status == -signal.SIGXCPU else "failed"


def _ended(pid: int) -> bool:
    """Whether a child has ended; it is not reaped, for that gives its times."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _queued(pid: int) -> float:
    """Seconds that a process of one thread was ready to run and a crowded machine let it wait."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0  # the kernel was built without such counters
