"""Forwards a local port to a Service or a pod with ``kubectl port-forward``."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl_console.errors import NotAllowedError, RequestRefusedError
from rl_console.tools import Tools, end

READY_SECONDS = 30.0
POLL_SECONDS = 0.05
FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")


@contextlib.contextmanager
def port_forward(tools: Tools, *, namespace: str, target: str, port: int) -> Iterator[int]:
    """Forward a free local port while the context lasts; yields the port.

    Args:
        tools: has kubectl.
        namespace: of the target.
        target: ``service/NAME`` or ``pod/NAME``. It goes to one pod and ends with that pod.
        port: of the target; in a pod it may listen on loopback alone.

    Raises:
        NotAllowedError: the user may not forward ports in the namespace.
        RequestRefusedError: kubectl is missing, ended, or did not forward in time.
    """
    command = tools.kubectl_command(
        "port-forward",
        "--namespace",
        namespace,
        "--address",
        "127.0.0.1",
        target,
        f":{port}",
    )
    # A file, not a pipe: kubectl logs every connection, and a full pipe would block it.
    with tempfile.NamedTemporaryFile(prefix="rl-port-forward-") as log:
        try:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        except OSError as error:
            cause = f"{command[0]} cannot be run: {error.strerror}"
            remedy = "Install kubectl, or name it with --kubectl"
            raise RequestRefusedError(doing=_doing(target), cause=cause, remedy=remedy) from error
        try:
            yield _await_port(process, Path(log.name), target)
        finally:
            end(process)


def open_forwarded(request: str | urllib.request.Request, *, seconds: float) -> Any:
    """As ``urllib.request.urlopen``, without a proxy: the address is a port of this machine.

    Args:
        request: an address, or a request.
        seconds: longest wait for bytes.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(request, timeout=seconds)


def _doing(target: str) -> str:
    return f"forwarding a port to {target}"


def _await_port(process: subprocess.Popen[bytes], log: Path, target: str) -> int:
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
    if "forbidden" in cause.lower():
        remedy = "Ask for the right to create pods/portforward in the namespace"
        raise NotAllowedError(doing=_doing(target), cause=cause, remedy=remedy)
    raise RequestRefusedError(doing=_doing(target), cause=cause)
