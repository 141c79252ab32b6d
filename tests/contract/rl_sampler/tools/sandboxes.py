"""The sandbox's server as a process without capabilities, as in its container."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import ROOT
from tests.waiting import HUNG_SECONDS, until

SECRET = "nobody-else-may-read-this"
WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


def command(path: Path, *, slots: int, wall_factor: int = 10) -> list[str]:
    """What starts a server; root's own is started without capabilities."""
    prefix = WITHOUT_CAPABILITIES if os.geteuid() == 0 else ()
    server = [sys.executable, "-m", "rl_sampler.sandbox.server", str(path)]
    return [*prefix, *server, "--slots", str(slots), "--wall-factor", str(wall_factor)]


def listens(path: Path) -> bool:
    """Whether somebody does; the socket's file is there a moment before."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@contextmanager
def serving(
    path: Path, *, slots: int = 2, wall_factor: int = 10
) -> Iterator[subprocess.Popen[bytes]]:
    """A server that listens."""
    sources = [str(ROOT / folder) for folder in ("contracts", "sampler_image")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sources), "SECRET": SECRET}
    process = subprocess.Popen(command(path, slots=slots, wall_factor=wall_factor), env=environment)
    try:
        until(lambda: listens(path), what="the sandbox to listen")
        assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.wait(timeout=HUNG_SECONDS)
