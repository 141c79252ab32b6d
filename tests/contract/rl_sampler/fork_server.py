"""Starts agents as forks of a process that has imported them: an import takes seconds each time.

``python fork_server.py MODEL`` is that process. For each line of its input, a request, it forks a
child, which runs a program of the sampler image with an environment of its own. To its output it
writes the children's process ids and how they ended.

What differs from a fresh interpreter: all children share modules that were imported, and objects
that were made, before the fork (among them the hash seed, the logging module and a tokenizer that
was loaded); torch cannot be imported; the garbage collector runs rarely and never visits what the
server made; ``tasks.UNCHANGED_SECONDS`` is one second; variables that an interpreter or a library
reads at its start (PYTHON*, OPENBLAS_NUM_THREADS) are the server's, save that folders of PYTHONPATH
are added to the path; at the end modules are not torn down. ``pods.new_process`` starts a fresh
interpreter.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from rl_sampler import TERMINATED
from tests.garbage import collect_rarely
from tests.servers import ROOT
from tests.waiting import HUNG_SECONDS

SOURCES = tuple(str(ROOT / folder) for folder in ("contracts", "sampler_image"))


class ForkedProcess:
    """A child of the fork server; waits and signals as ``subprocess.Popen`` does."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server, self.pid = server, pid

    def poll(self) -> int | None:
        """The exit status; negative for a signal, None while it runs."""
        return self._server.statuses.get(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raises TimeoutError."""
        with self._server.changed:
            if not self._server.changed.wait_for(lambda: self.poll() is not None, timeout):
                raise TimeoutError(f"process {self.pid} did not end within {timeout} s")
        return self._server.statuses[self.pid]

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """The process that agents are forked from."""

    def __init__(self, model: Path) -> None:
        """Start it; ``model`` is loaded once, so that all modules for tokenizers are imported."""
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([*SOURCES, str(ROOT)]),
            "OPENBLAS_NUM_THREADS": "1",  # a thread would not survive a fork
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.rl_sampler.fork_server", str(model)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.statuses: dict[int, int] = {}
        self._started: list[int] = []
        self.changed = threading.Condition()
        self._requests = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="fork server", daemon=True)
        self._reader.start()

    def launch(self, program: str, environment: Mapping[str, str], log: Path) -> ForkedProcess:
        """Fork a child that runs a program and writes to ``log``, which is appended to."""
        request = {"program": program, "environment": dict(environment), "log": str(log)}
        with self._requests:
            requests = _pipe(self._process.stdin)
            requests.write(json.dumps(request) + "\n")
            requests.flush()
            with self.changed:
                if not self.changed.wait_for(lambda: bool(self._started), HUNG_SECONDS):
                    raise TimeoutError("the fork server forked no process")
                return ForkedProcess(self, self._started.pop())

    def close(self) -> None:
        """End the server; children that still run stay."""
        _pipe(self._process.stdin).close()
        self._process.wait(timeout=HUNG_SECONDS)
        self._reader.join()
        _pipe(self._process.stdout).close()

    def _read(self) -> None:
        for line in _pipe(self._process.stdout):
            event = json.loads(line)
            with self.changed:
                if "status" in event:
                    self.statuses[event["pid"]] = event["status"]
                else:
                    self.statuses.pop(event["pid"], None)
                    self._started.append(event["pid"])
                self.changed.notify_all()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _tell(**event: int) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _serve() -> dict[str, Any] | None:
    """Fork until the input ends; returns the request in a child, None in the server."""
    children: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    line = sys.stdin.readline()
                    if not line:
                        return None
                    pid = os.fork()
                    if pid == 0:
                        for handle in children.values():
                            os.close(handle)
                        request: dict[str, Any] = json.loads(line)
                        return request
                    children[pid] = os.pidfd_open(pid)
                    selector.register(children[pid], selectors.EVENT_READ, pid)
                    _tell(pid=pid)
                else:
                    selector.unregister(key.fileobj)
                    os.close(children.pop(key.data))
                    status = os.waitstatus_to_exitcode(os.waitpid(key.data, 0)[1])
                    _tell(pid=key.data, status=status)


def _become(request: Mapping[str, Any]) -> None:
    """Give the child the streams, environment and path of a new process."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(request["environment"])
    added = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder for folder in added if folder not in sys.path]
    sys.argv = ["rl_sampler", request["program"]]
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))


def main(model: Path) -> int:
    """Serve; in a child, run the requested program and return its status."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # the agent's image has none
    import rl_sampler.tools.connection  # noqa: F401
    from rl_contracts.stores import tasks
    from rl_sampler.agents.prompt import load_prompts
    from rl_sampler.program import main as agent

    tasks.UNCHANGED_SECONDS = 1.0  # no test waits for half a minute

    load_prompts(model).render([{"role": "user", "content": "1"}], tools=())
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("a process with threads must not fork")
    collect_rarely()  # or the children's collections would copy the memory that they share
    request = _serve()
    if request is None:
        return 0
    _become(request)
    status = agent([request["program"]], os.environ)
    # As an interpreter ends, but without the teardown of all modules, which takes most of a second.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
