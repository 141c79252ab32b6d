"""The trainer's HTTP endpoint: ``/metrics`` for Prometheus."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

from rl_contracts.http_server import SOCKET_SECONDS, BoundedServer

log = logging.getLogger(__name__)

METRICS = "/metrics"
CONNECTIONS = 8
"""At the same time. Each is a thread, which sleeps unless it answers."""
POLL_SECONDS = 0.5
"""Between checks for the end of serving."""


@contextlib.contextmanager
def serving(port: int | None, *, page: Callable[[], bytes]) -> Iterator[int | None]:
    """Answer scrapes on all addresses until the block ends; yields the port, or None.

    A port that cannot be bound, e.g. because another process on the host's network has it, is
    logged and stops nothing. The end of the block does not wait for a slow client.

    Args:
        port: 0 picks a free one; None: nothing is served.
        page: what a scrape reads now; called on a thread of its own.
    """
    server = None if port is None else _bound(port, page)
    if server is None:
        yield None
        return
    thread = threading.Thread(
        target=server.serve_forever, args=(POLL_SECONDS,), name="metrics", daemon=True
    )
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def _bound(port: int, page: Callable[[], bytes]) -> BoundedServer | None:
    try:
        return BoundedServer(("", port), _handler(page), connections=CONNECTIONS)
    except OSError as error:
        log.warning("metrics are not served on port %d: %s", port, error)
        return None


def _handler(page: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SOCKET_SECONDS

        def do_GET(self) -> None:
            if self.path.partition("?")[0] == METRICS:
                self._answer(200, page(), CONTENT_TYPE)
            else:
                self._answer(404, b"not found\n", "text/plain")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Scrapes are not worth a line, and what a client sends is not to be printed."""

    return Handler
