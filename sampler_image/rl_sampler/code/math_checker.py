"""Compares mathematical answers by math-verify, in a process that can be ended.

It runs in the container ``code``: the policy writes the answers, and parsing them evaluates them.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from typing import IO

from rl_contracts.errors import RLError

START_SECONDS = 120.0
PROCESSOR_SECONDS = 5.0
"""Of a comparison. A right answer takes milliseconds."""
WALL_SECONDS = 120.0
"""Of a comparison: long enough for its processor seconds on a busy machine."""
OVERSPENT = (-signal.SIGPROF,)
PASSED_ON = ("PATH", "HOME", "TMPDIR", "LANG")


class CompareError(RLError):
    """The process that compares ended: no fault of the answer."""


class MathChecker:
    """A worker process, started on the first use and again after it ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def same(self, reference: str, answer: str, *, seconds: float = PROCESSOR_SECONDS) -> bool:
        """Whether both have the same value; an answer that is too hard to compare is wrong.

        Args:
            reference: the record's answer.
            answer: the policy's.
            seconds: of processor time; a comparison that takes more is too hard.

        Raises:
            CompareError: the worker does not start or does not answer.
        """
        asked = {"reference": reference, "answer": answer, "seconds": seconds}
        with self._lock:
            process = self._running()
            reply = self._exchange(process, json.dumps(asked))
            if reply is None:
                return self._ended(process)
            return bool(json.loads(reply))

    def close(self) -> None:
        """End the worker."""
        with self._lock:
            if self._process is not None:
                self._end(self._process)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is not None:
            if self._process.poll() is None:
                return self._process
            self._end(self._process)
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rl_sampler.code.math_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        if self._line(self._process, seconds=START_SECONDS) != "ready":
            self._end(self._process)
            raise CompareError("the process that compares mathematical answers did not start")
        return self._process

    def _exchange(self, process: subprocess.Popen[str], line: str) -> str | None:
        try:
            _opened(process.stdin).write(line + "\n")
            _opened(process.stdin).flush()
        except BrokenPipeError:
            return None
        return self._line(process, seconds=WALL_SECONDS)

    def _line(self, process: subprocess.Popen[str], *, seconds: float) -> str | None:
        """The worker's next line; None when it has ended."""
        output = _opened(process.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            if not selector.select(timeout=seconds):
                self._end(process)
                raise CompareError(f"no mathematical comparison within {seconds:.0f} s")
        return output.readline().strip() or None

    def _ended(self, process: subprocess.Popen[str]) -> bool:
        """The result of a worker that ended: False where it exceeded its processor time."""
        status = self._end(process)
        if status in OVERSPENT:
            return False
        raise CompareError(f"the process that compares mathematical answers ended with {status}")

    def _end(self, process: subprocess.Popen[str]) -> int:
        try:
            status = process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # unread input is lost with the worker
                    continue
        self._process = None
        return status


def _opened(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
