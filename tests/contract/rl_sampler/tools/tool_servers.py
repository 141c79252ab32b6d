"""The MCP server of the tests as a process that can be killed and started again."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.servers import free_port
from tests.waiting import HUNG_SECONDS, until

SERVER = Path(__file__).with_name("mcp_server.py")


def listens(url: str) -> bool:
    """Whether a server answers, with an error too."""
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        return False
    return True


class HttpServer:
    """The server as a process of its own."""

    def __init__(self, *, token: str = "") -> None:
        self.port, self.token = free_port(), token
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.stop()
        command = [sys.executable, str(SERVER), "--port", str(self.port), "--token", self.token]
        self.process = subprocess.Popen(command)
        until(lambda: listens(self.url), what="the MCP server")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=HUNG_SECONDS)
