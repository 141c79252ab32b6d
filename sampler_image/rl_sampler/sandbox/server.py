"""``python -m rl_sampler.sandbox.server <socket>``: runs programs for clients of the socket.

It has its own container beside the agent, with another user, and without Secrets, tokens and files
of the run. The two containers share the socket's folder only.

Three kinds of processes, each a fork of the one before, none with a second thread: the server
accepts connections and never reads a request; a handler reads one request and waits for its
program; the program. The server hides before it accepts, and so its forks are hidden from their
first instruction on.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError

from rl_sampler.sandbox import landlock
from rl_sampler.sandbox.child import end_with, hide
from rl_sampler.sandbox.execution import WALL_FACTOR, execute
from rl_sampler.sandbox.syscalls import MACHINES
from rl_sampler.sandbox.wire import MAX_REQUEST_BYTES, Program

logger = logging.getLogger("rl_sampler.sandbox")

SOCKET_MODE = 0o660
"""The agent reaches the socket through the group that the pod gives to the folder's files."""
BACKLOG = 4096
"""Connections wait here while all slots are taken."""
REQUEST_SECONDS = 60.0
LOGGED = 2000
"""Characters of the errors of a program that is an infrastructure error."""
FAILED, REFUSED = 1, 2
ENVIRONMENT = {"LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Of the server and so of each program, which can read its own memory."""
ROOT = Path(__file__).parents[2]
START = (
    "import sys; sys.path.append(sys.argv.pop()); "
    "from rl_sampler.sandbox.server import serve; sys.path.pop(); sys.exit(serve(sys.argv[1:]))"
)


class Server:
    """Takes a connection for each program; a fixed number run concurrently, the others wait."""

    def __init__(
        self, path: Path, *, slots: int, rules: int | None, wall_factor: int = WALL_FACTOR
    ) -> None:
        """Listen on a socket.

        Args:
            path: of the socket; the socket of an earlier server is removed.
            slots: number of programs that run concurrently.
            rules: descriptor of the Landlock ruleset; None where the kernel has none.
            wall_factor: wall seconds per second of a program's processor time.
        """
        self._slots, self._rules, self._wall_factor = slots, rules, wall_factor
        self._handlers: set[int] = set()
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        path.chmod(SOCKET_MODE)
        self._listener.listen(BACKLOG)

    def serve(self) -> NoReturn:
        """Accept connections for ever, each as soon as a slot is free."""
        while True:
            self._reap()
            connection, _ = self._listener.accept()
            with connection:
                self._start(connection)

    def _reap(self) -> None:
        """Forget handlers that have ended; wait for one of them where all slots are taken."""
        while self._handlers:
            full = len(self._handlers) >= self._slots
            pid, _ = os.waitpid(-1, 0 if full else os.WNOHANG)
            if not pid:
                return
            self._handlers.discard(pid)

    def _start(self, connection: socket.socket) -> None:
        me = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            logger.error("a request was dropped, because no process could be started: %s", error)
            return
        if pid:
            self._handlers.add(pid)
            return
        status = FAILED
        try:
            end_with(me)
            self._listener.close()
            self._handle(connection)
            status = 0
        except OSError as error:
            logger.warning("a program was dropped with its connection: %s", error)
        except Exception:
            logger.exception("a program was dropped")
        finally:
            os._exit(status)

    def _handle(self, connection: socket.socket) -> None:
        """Read a request line, run the program, write an answer line.

        A connection without an answer is an infrastructure error.
        """
        connection.settimeout(REQUEST_SECONDS)
        try:
            with connection.makefile("rb") as request:  # not kept: the program's memory holds it
                program = Program.model_validate_json(request.readline(MAX_REQUEST_BYTES))
        except ValidationError as error:
            logger.warning("a request has %d malformed fields and was dropped", error.error_count())
            return
        outcome = execute(program, rules=self._rules, wall_factor=self._wall_factor)
        if outcome.ending == "lost":
            logger.error("a program was killed or not confined: %s", outcome.errors[-LOGGED:])
        connection.sendall(outcome.model_dump_json().encode() + b"\n")


def confinement_problem(*, machine: str, status: str) -> str:
    """Why programs cannot be confined here; empty where they can.

    Args:
        machine: architecture of the processor.
        status: of this process, the text of ``/proc/self/status``.
    """
    if machine not in MACHINES:
        known = " and ".join(MACHINES)
        return f"programs can be confined only on {known}, but this machine is {machine}"
    held = next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1]
    if int(held, 16):
        return f"the sandbox has the capabilities {held}: drop all of them in its container"
    return ""


def serve(arguments: list[str]) -> int:
    """Serve until SIGTERM; 2 where programs cannot be confined."""
    parser = argparse.ArgumentParser(prog="rl_sampler.sandbox.server", description=__doc__)
    parser.add_argument("socket", type=Path)
    parser.add_argument("--slots", type=int, required=True, help="programs run concurrently")
    parser.add_argument(
        "--wall-factor", type=int, default=WALL_FACTOR, help="wall seconds per processor second"
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    status = Path("/proc/self/status").read_text()
    reason = confinement_problem(machine=platform.machine(), status=status)
    if reason:
        logger.error("%s", reason)
        return REFUSED
    hide()
    rules = landlock.reading_rules()
    if rules is None:
        logger.warning(
            "this kernel has no Landlock: programs can read every file of this container that its "
            "user can read"
        )
    server = Server(given.socket, slots=given.slots, rules=rules, wall_factor=given.wall_factor)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    logger.info("ready to run programs, %d at a time", given.slots)
    server.serve()


def main(arguments: list[str]) -> NoReturn:
    """Start ``serve`` in this process with an isolated interpreter and a clean environment."""
    command = [sys.executable, "-I", "-X", "utf8", "-c", START, *arguments, str(ROOT)]
    os.execve(sys.executable, command, ENVIRONMENT)


if __name__ == "__main__":
    main(sys.argv[1:])
