"""A server that keeps the headers of requests, and a kubeconfig that names it."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_console.cluster.api import Api
from rl_console.cluster.kube import Cluster
from tests.network.authority import Authority

SERVER = {"server": "https://127.0.0.1:9"}
"""A cluster of a kubeconfig: nobody listens there."""


class RecordingServer(http.server.ThreadingHTTPServer):
    """Keeps what requests have, and answers each with an empty list, or 401 for some tokens."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.paths, self.headers = list[str](), list[list[tuple[str, str]]]()
        self.bodies, self.certificates = list[bytes](), list[str]()
        self.authority: Authority | None = None
        self.refused = set[str]()

    def use_tls(self, folder: Path) -> None:
        self.authority = Authority()
        context = self.authority.context(folder)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.authority.pem)
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )

    @property
    def url(self) -> str:
        return f"{'https' if self.authority else 'http'}://127.0.0.1:{self.server_port}"

    @property
    def cluster(self) -> dict[str, Any]:
        """As a kubeconfig has it."""
        if self.authority is None:
            return {"server": self.url}
        authority = base64.b64encode(self.authority.pem.encode()).decode()
        return {"server": self.url, "certificate-authority-data": authority}

    def values(self, beginning: str) -> list[tuple[str, str]]:
        """Of headers of the last request."""
        return [each for each in self.headers[-1] if each[0].startswith(beginning)]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: RecordingServer

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.server.headers.append(self.headers.items())
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"] or 0)))
        if isinstance(self.connection, ssl.SSLSocket):
            shown = self.connection.getpeercert() or {}
            self.server.certificates.append(str(shown.get("serialNumber")))
        body = b'{"items": []}'
        is_refused = (self.headers["Authorization"] or "").removeprefix(
            "Bearer "
        ) in self.server.refused
        self.send_response(401 if is_refused else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def do_CONNECT(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


def serving(started: RecordingServer) -> Iterator[RecordingServer]:
    thread = threading.Thread(target=started.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield started
    started.shutdown()
    thread.join()


def kubeconfig(
    folder: Path, cluster: dict[str, Any], user: dict[str, Any] | None, **context: Any
) -> Path:
    """A file with one context."""
    file = folder / "kubeconfig"
    chosen = {"name": "test", "context": {"cluster": "test", "user": "test", **context}}
    written = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [chosen],
        "current-context": "test",
    }
    file.write_text(json.dumps(written))
    return file


def connect(file: Path) -> Cluster:
    return Cluster(Api.connect(file, context=None, request_seconds=5))


def use_two_files(folder: Path, user: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a cluster's kubeconfig and a user's; returns the folder of the user's."""
    folders = [folder / "cluster", folder / "user"]
    for each in folders:
        each.mkdir()
    files = [kubeconfig(each, SERVER, user) for each in folders]
    written = json.loads(files[0].read_text())
    files[0].write_text(json.dumps({**written, "users": []}))
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, files)))
    return folders[1]
