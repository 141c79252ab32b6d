"""Forwards a local port to a Service with ``kubectl port-forward``."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rl_console.errors import RequestRefusedError
from rl_console.tools import Tools, end

READY_SECONDS = 30.0
POLL_SECONDS = 0.05
FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")


@contextlib.contextmanager
def port_forward(tools: Tools, *, namespace: str, service: str, port: int) -> Iterator[int]:
    """Forward a free local port to a Service while the context lasts; yields the port.

    The forwarding goes to one pod of the Service and ends with that pod.

    Raises:
        RequestRefusedError: kubectl ended, or did not forward in time.
    """
    command = tools.kubectl_command(
        "port-forward",
        "--namespace",
        namespace,
        "--address",
        "127.0.0.1",
        f"service/{service}",
        f":{port}",
    )
    # A file, not a pipe: kubectl logs every connection, and a full pipe would block it.
    with tempfile.NamedTemporaryFile(prefix="rl-port-forward-") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield _await_port(process, Path(log.name), service)
        finally:
            end(process)


def _await_port(process: subprocess.Popen[bytes], log: Path, service: str) -> int:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        written = log.read_text()
        match = FORWARDING.search(written)
        if match:
            return int(match.group(1))
        if ended:
            break
        time.sleep(POLL_SECONDS)
    cause = log.read_text().strip() or f"no answer in {READY_SECONDS:.0f} s"
    raise RequestRefusedError(doing=f"forwarding a port to {service}", cause=cause)
