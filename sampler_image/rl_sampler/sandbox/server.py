"""``python -m rl_sampler.sandbox.server <socket>``: runs programs for whoever can reach the socket.

It has a container of its own beside the agent: another user, no Secret, no token, no file of the
run. The socket's folder is all that both see.
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
from rl_sampler.sandbox.wire import MOST_REQUEST_BYTES, Outcome, Program

logger = logging.getLogger("rl_sampler.sandbox")

SOCKET_MODE = 0o660
"""The agent is of the group that the pod gives the folder's files."""
REFUSED = 2


class Server(socketserver.ThreadingUnixStreamServer):
    """One connection for each program; so many run side by side, the others wait."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, path: Path, *, slots: int, run: Callable[[Program], Outcome] = execute
    ) -> None:
        """Listen.

        Args:
            path: of the socket; one that a server before this left is removed.
            slots: programs side by side.
            run: runs one.
        """
        self.slots, self.run = threading.BoundedSemaphore(slots), run
        path.unlink(missing_ok=True)
        super().__init__(str(path), Handler)
        path.chmod(SOCKET_MODE)


class Handler(socketserver.StreamRequestHandler):
    """One program. A connection that ends without an answer is an infrastructure error."""

    server: Server

    def handle(self) -> None:
        """Read a line, run it, answer a line."""
        line = self.rfile.readline(MOST_REQUEST_BYTES)
        try:
            program = Program.model_validate_json(line)
        except ValidationError as error:
            logger.warning("a request is no program: %s", error.error_count())
            return
        with self.server.slots:
            outcome = self.server.run(program)
        self.wfile.write(outcome.model_dump_json().encode() + b"\n")


def unfit(*, machine: str, status: str) -> str:
    """Why programs cannot be confined here; empty where they can.

    Args:
        machine: the processor's kind.
        status: of this process, as ``/proc/self/status`` has it.
    """
    if machine != MACHINE:
        return f"programs can be confined on {MACHINE} alone, this is {machine}"
    held = next(line for line in status.splitlines() if line.startswith("CapEff:")).split()[1]
    if int(held, 16):
        return f"it has the capabilities {held}: start it without any"
    return ""


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM; 2 where programs cannot be confined."""
    parser = argparse.ArgumentParser(prog="rl_sampler.sandbox.server", description=__doc__)
    parser.add_argument("socket", type=Path)
    parser.add_argument("--slots", type=int, required=True, help="programs side by side")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    status = Path("/proc/self/status").read_text()
    reason = unfit(machine=platform.machine(), status=status)
    if reason:
        logger.error("%s", reason)
        return REFUSED
    hide()
    with Server(given.socket, slots=given.slots) as server:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        logger.info("programs are run, %d at a time", given.slots)
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
