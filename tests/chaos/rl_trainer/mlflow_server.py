"""MLflow's own tracking server, and a front through which it is slow, broken or gone.

The server's code is part of the client's distribution; what it imports beyond that is installed in
an environment of its own, which sees the project's packages behind.
"""

from __future__ import annotations

import fcntl
import http.client
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rl_local import venv
from tests.servers import free_port
from tests.waiting import until

REQUIREMENTS = Path(__file__).with_name("mlflow-requirements.txt")
NAME = "venv-mlflow"
HOP = {"connection", "transfer-encoding", "content-length", "server", "date", "host"}


class Front:
    """Passes requests on, or does to them what a test says."""

    def __init__(self, server_port: int) -> None:
        self.status = 0
        """When set, what every request is answered with."""
        self.passing = threading.Event()
        """While clear, requests wait."""
        self.passing.set()
        self.losing = ""
        """The next request whose path ends so is carried out, and its answer lost; once."""
        self.refused, self.lost = 0, 0
        self.held = threading.Event()
        """Set when a request has had to wait."""
        front = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                front.answer(self, server_port)

            def do_POST(self) -> None:
                front.answer(self, server_port)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """For ``training.tracking.mlflow``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop."""
        self.passing.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler, port: int) -> None:
        """Answer one request."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if not self.passing.is_set():
            self.held.set()
            self.passing.wait()
        if self.status:
            self.refused += 1
            request.send_error(self.status)
            return
        server = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        try:
            headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP}
            server.request(request.command, request.path, body=body, headers=headers)
            got = server.getresponse()
            content = got.read()
        finally:
            server.close()
        if self.losing and request.path.partition("?")[0].endswith(self.losing):
            self.losing = ""
            self.lost += 1
            request.close_connection = True
            return
        request.send_response(got.status)
        for name, value in got.getheaders():
            if name.lower() not in HOP:
                request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)


def environment() -> Path:
    """The server's interpreter; its packages are installed on the first use."""
    cache = Path(os.environ.get("RL_CACHE") or Path.home() / ".cache/rl-operator")
    cache.mkdir(parents=True, exist_ok=True)
    project = Path(sys.prefix).resolve()

    def build(folder: Path) -> None:
        venv.install(folder, ["--no-deps", "--requirement", str(REQUIREMENTS)])
        behind = venv.site_packages(folder) / "behind.pth"
        behind.write_text(f"{venv.site_packages(project)}\n")

    with (cache / f"{NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        key = venv.key([str(project)], REQUIREMENTS.read_bytes())
        return venv.ensure_keyed(cache, name=NAME, key=key, build=build) / "bin/python"


@contextmanager
def running_mlflow(folder: Path) -> Iterator[int]:
    """The server on a port of its own."""
    port = free_port()
    variables = os.environ | {
        "_MLFLOW_SERVER_FILE_STORE": f"sqlite:///{folder}/mlflow.db",
        "_MLFLOW_SERVER_ARTIFACT_ROOT": str(folder / "artifacts"),
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    command = ["-m", "uvicorn", "mlflow.server.fastapi_app:app", "--port", str(port)]

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    with (folder / "mlflow.log").open("wb") as log:
        process = subprocess.Popen(
            [str(environment()), *command], env=variables, stdout=log, stderr=log
        )
    try:
        until(answers, what="MLflow's server", seen=lambda: (folder / "mlflow.log").read_text())
        yield port
    finally:
        process.kill()
        process.wait()
