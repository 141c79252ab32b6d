"""The HTTP server of a reader: a token, and limits of bytes, time and requests at once."""

from __future__ import annotations

import hmac
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import BaseModel, ValidationError

from rl_contracts.reader import HEALTH, REQUEST_BYTES, token_hash

SOCKET_SECONDS = 5.0
"""Longest silence of a client while it sends a request or takes an answer."""
REQUESTS = 16
"""Requests at the same time; more are answered with 503."""
CONNECTIONS = 64
"""Connections at the same time; more are closed."""

Answer = Callable[[bytes], BaseModel]

log = logging.getLogger(__name__)


class Server(ThreadingHTTPServer):
    """Serves the paths that it is given."""

    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(
        self, address: tuple[str, int], paths: Mapping[str, Answer], *, token_sha256: str
    ) -> None:
        """Listen.

        Args:
            address: IP and port.
            paths: by path what answers the body of a request; raises ValidationError for a bad one.
            token_sha256: SHA-256 of the token that requests must carry, in hex.
        """
        self.paths, self.token_sha256 = paths, token_sha256
        self.slots = threading.BoundedSemaphore(REQUESTS)
        self.asked_at = time.monotonic()
        self._connections = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection in a thread of its own, if there are not too many."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As its base, and make room for another connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a connection that failed, by its kind only."""
        log.info("a request failed", exc_info=True)

    def server_bind(self) -> None:
        """Bind without the look-up of a host name that the base makes."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = SOCKET_SECONDS

    def do_GET(self) -> None:
        """Whether the process answers; for the kubelet, without a token."""
        self._send(200 if self.path == HEALTH else 404, b"")

    def do_POST(self) -> None:
        """Answer one request of the operator."""
        if not self._is_permitted():
            self._send(401, b"")
            return
        answer = self.server.paths.get(self.path)
        body = self._body()
        if answer is None or body is None:
            self._send(404 if answer is None else 413, b"")
            return
        if not self.server.slots.acquire(blocking=False):
            self._send(503, b"")
            return
        self.server.asked_at = time.monotonic()
        try:
            self._send(200, answer(body).model_dump_json().encode())
        except ValidationError as error:
            log.info("a request is not valid: %d problems", error.error_count())
            self._send(400, b"")
        finally:
            self.server.slots.release()

    def _is_permitted(self) -> bool:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        known = hmac.compare_digest(token_hash(token), self.server.token_sha256)
        return known and scheme == "Bearer"

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or len(length) > 9 or int(length) > REQUEST_BYTES:
            return None
        return self.rfile.read(int(length))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""
