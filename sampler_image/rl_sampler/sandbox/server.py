"""``python -m rl_sampler.sandbox.server <socket>``: runs programs for clients of the socket.

It has its own container beside the agent, with another user, and without Secrets, tokens and files
of the run. The two containers share the socket's folder only.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import signal
import socketserver
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from rl_sampler.sandbox.child import hide
from rl_sampler.sandbox.execution import execute
from rl_sampler.sandbox.syscalls import MACHINE
from rl_sampler.sandbox.wire import MAX_REQUEST_BYTES, Outcome, Program

logger = logging.getLogger("rl_sampler.sandbox")

SOCKET_MODE = 0o660
"""The agent reaches the socket through the group that the pod gives to the folder's files."""
REFUSED = 2


class Server(socketserver.ThreadingUnixStreamServer):
    """Takes a connection for each program; a fixed number run concurrently, the others wait."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, path: Path, *, slots: int, run: Callable[[Program], Outcome] = execute
    ) -> None:
        """Listen on a socket.

        Args:
            path: of the socket; the socket of an earlier server is removed.
            slots: number of programs that run concurrently.
            run: runs a program.
        """
        self.slots, self.run = threading.BoundedSemaphore(slots), run
        path.unlink(missing_ok=True)
        super().__init__(str(path), Handler)
        path.chmod(SOCKET_MODE)


class Handler(socketserver.StreamRequestHandler):
    """Handles a program. A connection without an answer is an infrastructure error."""

    server: Server

    def handle(self) -> None:
        """Read a request line, run the program, write an answer line."""
        line = self.rfile.readline(MAX_REQUEST_BYTES)
        try:
            program = Program.model_validate_json(line)
        except ValidationError as error:
            logger.warning("a request has %d malformed fields and was dropped", error.error_count())
            return
        with self.server.slots:
            outcome = self.server.run(program)
        self.wfile.write(outcome.model_dump_json().encode() + b"\n")


def confinement_problem(*, machine: str, status: str) -> str:
    """Why programs cannot be confined here; empty where they can.

    Args:
        machine: architecture of the processor.
        status: of this process, the text of ``/proc/self/status``.
    """
    if machine != MACHINE:
        return f"programs can be confined only on {MACHINE}, but this machine is {machine}"
    held = next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1]
    if int(held, 16):
        return f"the sandbox has the capabilities {held}: drop all of them in its container"
    return ""


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM; 2 where programs cannot be confined."""
    parser = argparse.ArgumentParser(prog="rl_sampler.sandbox.server", description=__doc__)
    parser.add_argument("socket", type=Path)
    parser.add_argument("--slots", type=int, required=True, help="programs run concurrently")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    status = Path("/proc/self/status").read_text()
    reason = confinement_problem(machine=platform.machine(), status=status)
    if reason:
        logger.error("%s", reason)
        return REFUSED
    hide()
    with Server(given.socket, slots=given.slots) as server:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        logger.info("ready to run programs, %d at a time", given.slots)
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
