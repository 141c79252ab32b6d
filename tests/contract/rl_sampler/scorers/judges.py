"""The judge's server as a process that can be killed and started again."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers import free_port
from tests.waiting import HUNG_SECONDS, until

SERVER = Path(__file__).with_name("judge_server.py")


class JudgeServer:
    """One server on one port."""

    def __init__(self, *, token: str = "") -> None:
        self.port, self.token = free_port(), token
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, str(SERVER), str(self.port), self.token])
        until(self._listens, what="the judge's server")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=HUNG_SECONDS)
            self._process = None

    def endpoint(self, model: str = "steady", **fields: Any) -> dict[str, Any]:
        """As a manifest names it."""
        return {"url": self.url, "model": model, **fields}

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@contextmanager
def judging(*, token: str = "") -> Iterator[JudgeServer]:
    """A server that ends with the test."""
    server = JudgeServer(token=token)
    server.start()
    try:
        yield server
    finally:
        server.kill()
