"""The HTTP endpoint at which viewers ask for data of runs, by their own token."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from rl_contracts.http_server import SOCKET_SECONDS, BackgroundEndpoint, BoundedServer

PATH = "/v1/run-data"
TOKEN_HEADER = "X-RL-Token"
"""The API server's proxy does not pass the header Authorization on."""
CONNECTIONS = 64
REQUESTS = 8
"""Answered at the same time; others get the status 503 and try again."""
REQUEST_BYTES = 64 << 10

Answer = Callable[[str, bytes], tuple[int, bytes]]
"""Takes the viewer's token and the request's JSON; returns HTTP status and JSON."""


def _problem_body(problem: str) -> bytes:
    """A problem, also by the name under which the API server's clients look for one."""
    return json.dumps({"problem": problem, "message": problem}).encode()


def _standing_by(token: str, body: bytes) -> tuple[int, bytes]:
    return 503, _problem_body("This operator stands by. Ask again: another one answers.")


class DataEndpoint(BackgroundEndpoint):
    """Serves ``PATH``; until ``serve`` is called it says that this process stands by."""

    def __init__(self, port: int) -> None:
        """Bind a TCP port on all addresses."""
        self._answer: Answer = _standing_by
        slots = threading.BoundedSemaphore(REQUESTS)
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            timeout = SOCKET_SECONDS
            server: BoundedServer

            def do_POST(self) -> None:
                length = self.headers.get("Content-Length", "")
                if self.path != PATH:
                    self._send(404, _problem_body("There is nothing at this path."))
                elif not length.isdigit() or len(length) > 9 or int(length) > REQUEST_BYTES:
                    self._send(413, _problem_body("The request is too large."))
                else:
                    self._answer(self.rfile.read(int(length)))

            def _answer(self, body: bytes) -> None:
                """Answer a request that has arrived: one that is still sent holds no slot."""
                if not slots.acquire(blocking=False):
                    self._send(503, _problem_body("Too many viewers ask at once. Ask again."))
                    return
                self.server.keep(self.connection)
                try:
                    self._send(*endpoint._answer(_token(self), body))
                finally:
                    slots.release()

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Log nothing: a request carries a token."""

        super().__init__(BoundedServer(("", port), Handler, connections=CONNECTIONS))

    def serve(self, answer: Answer) -> None:
        """Answer viewers from now on."""
        self._answer = answer


def _token(handler: BaseHTTPRequestHandler) -> str:
    own = handler.headers.get(TOKEN_HEADER, "")
    scheme, _, token = handler.headers.get("Authorization", "").partition(" ")
    return own or (token if scheme == "Bearer" else "")
