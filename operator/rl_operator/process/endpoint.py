"""The HTTP endpoint: /healthz, /readyz, /metrics."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from rl_contracts.http_server import SOCKET_SECONDS, BackgroundEndpoint, BoundedServer
from rl_operator.kube.metrics import REGISTRY

CONNECTIONS = 32
"""At the same time: probes, scrapes, and whoever else reaches the port."""


class Endpoint(BackgroundEndpoint):
    """Serves in threads of its own, so that it still answers when the event loop is stuck."""

    def __init__(
        self, port: int, *, healthy: Callable[[], bool], ready: Callable[[], bool]
    ) -> None:
        """Bind the port; 0 picks a free one.

        Args:
            port: TCP port on all addresses.
            healthy: False asks the kubelet to restart the process.
            ready: whether the process works, or stands by as a follower.
        """
        checks = {"/healthz": healthy, "/readyz": ready}

        class Handler(BaseHTTPRequestHandler):
            timeout = SOCKET_SECONDS

            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._answer(200, generate_latest(REGISTRY), CONTENT_TYPE_LATEST)
                elif self.path in checks:
                    passed = checks[self.path]()
                    self._answer(200 if passed else 503, b"ok\n" if passed else b"not ok\n")
                else:
                    self._answer(404, b"not found\n")

            def _answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Log nothing: probes come every few seconds."""

        super().__init__(BoundedServer(("", port), Handler, connections=CONNECTIONS))
