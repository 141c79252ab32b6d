"""A helper process in slowed time, asked for its counts and its time by lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.sampler.protocol.command_counts import CommandCounts


class Remote:
    """The benchmark's side."""

    def __init__(self, module: str, *, factor: float, **given: Any) -> None:
        """Start a module of this package with keyword arguments."""
        slowed = [sys.executable, "-m", "benchmarks.sampler.protocol.slowed", str(factor)]
        self._process = subprocess.Popen(
            [*slowed, f"benchmarks.sampler.protocol.{module}", json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def wait_ready(self) -> None:
        """Wait until the process has started its work."""
        assert self._read() == "ready"

    def ask(self, what: str) -> Any:
        """Send the name of a request and return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return self._read()

    def end(self) -> None:
        """Kill the process: what it would do at its end is not measured."""
        self._process.kill()
        self._process.communicate()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the process ended with status {self._process.wait()}"
        return json.loads(line)


def given() -> dict[str, Any]:
    """The helper's side: its arguments."""
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    return arguments


def answer_in_thread(counts: CommandCounts, others: dict[str, Callable[[], Any]]) -> None:
    """The helper's side: say that it is ready, and answer in a thread until it is killed."""

    def answer() -> None:
        for line in sys.stdin:
            request = line.strip()
            if request == "counts":
                reply: Any = {"time": time.monotonic(), "counts": counts.snapshot()}
            else:
                reply = others[request]()
            print(json.dumps(reply), flush=True)

    print(json.dumps("ready"), flush=True)
    threading.Thread(target=answer, daemon=True).start()
