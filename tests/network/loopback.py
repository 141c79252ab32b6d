"""A server of a test's own in a thread, on the loopback interface where no other is named."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue

from tests.waiting import HUNG_SECONDS


@contextmanager
def listening(
    handler: type[BaseHTTPRequestHandler],
    *,
    context: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
) -> Iterator[str]:
    """Serve until the block ends, by TLS with a context; gives the base URL.

    Args:
        handler: answers.
        context: of TLS; None: plain HTTP.
        host: an IPv4 address of this machine.
    """
    server = ThreadingHTTPServer((host, 0), handler)
    server.daemon_threads = True
    if context is not None:
        # Hands are shaken by the thread of each connection, not by the one that accepts them all.
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        scheme = "http" if context is None else "https"
        yield f"{scheme}://{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def hanging() -> Iterator[tuple[str, SimpleQueue[str]]]:
    """Serve, and answer nothing until the block ends; gives the base URL and what was asked."""
    asked, left = SimpleQueue[str](), threading.Event()

    class Hanging(BaseHTTPRequestHandler):
        def parse_request(self) -> bool:
            super().parse_request()
            asked.put(self.command)
            self.close_connection = True
            left.wait(HUNG_SECONDS)
            return False

    with listening(Hanging) as url:
        try:
            yield url, asked
        finally:
            left.set()
