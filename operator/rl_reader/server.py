"""The HTTP server of a reader: a token, and limits of bytes, time and requests at once."""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler

from pydantic import BaseModel, ValidationError

from rl_contracts.http_server import SOCKET_SECONDS, BoundedServer
from rl_contracts.reader import HEALTH, REQUEST_BYTES, token_hash

REQUESTS = 16
"""Requests at the same time, fewer than connections; more are answered with 503."""

Answer = Callable[[bytes], BaseModel]

log = logging.getLogger(__name__)


class Server(BoundedServer):
    """Serves the paths that it is given."""

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
        super().__init__(address, _Handler)


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
        self.server.keep(self.connection)
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
