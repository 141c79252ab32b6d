"""The HTTP server of the programs' own ports: a bounded number of connections and threads."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONNECTIONS = 64
"""Connections at the same time."""
BACKLOG = 1024
"""Connections that wait to be accepted; others try again after a second."""
SOCKET_SECONDS = 5.0
"""Longest silence of a client while it sends a request, and longest time to send it an answer."""
THREADS = 2
"""Threads at the same time, as a multiple of the connections: those that were ended still end."""
THREAD_SECONDS = 1.0
"""Longest wait for a thread; then the new connection is closed."""

log = logging.getLogger(__name__)


class BoundedServer(ThreadingHTTPServer):
    """Serves each connection in a thread of its own, and no more than a number of connections.

    Beyond the number a new connection takes the place of the oldest. So clients that stay silent,
    or send a byte now and then, keep nobody out: a request is answered within milliseconds, long
    before its connection is the oldest.
    """

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        *,
        connections: int = CONNECTIONS,
    ) -> None:
        """Listen.

        Args:
            address: IP, or "" for all of IPv4, and port; port 0 picks a free one.
            handler: of the requests; its ``timeout`` limits how long a client may be silent.
            connections: at the same time, ≥ 1.
        """
        self._most = connections
        self._threads_left = threading.BoundedSemaphore(THREADS * connections)
        self._lock = threading.Lock()
        self._open: dict[socket.socket, None] = {}  # the oldest first
        super().__init__(address, handler)

    def keep(self, connection: socket.socket) -> None:
        """Do not give the place of this connection to another: its request is to be answered."""
        with self._lock:
            self._open.pop(connection, None)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection in a thread; if there are too many, end the oldest."""
        if len(self._open) >= self._most:
            self._end_oldest()
        if not self._threads_left.acquire(timeout=THREAD_SECONDS):
            self.shutdown_request(request)
            return
        with self._lock:
            self._open[request] = None
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system has no thread left
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As its base, and make room for another connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what failed; a client that left, or whose place another took, is no failure."""
        if isinstance(sys.exc_info()[1], OSError):
            log.debug("a connection ended early", exc_info=True)
        else:
            log.error("a request failed", exc_info=True)

    def server_bind(self) -> None:
        """Bind without the look-up of a host name that the base makes, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def _leave(self, connection: socket.socket) -> None:
        self.keep(connection)
        self._threads_left.release()

    def _end_oldest(self) -> None:
        with self._lock:
            oldest = next(iter(self._open), None)
            if oldest is None:
                return
            del self._open[oldest]
        try:
            oldest.shutdown(socket.SHUT_RDWR)  # its thread wakes up, and closes it
        except OSError:
            log.debug("a connection had ended already")


class BackgroundEndpoint:
    """An endpoint whose server runs in a thread of its own."""

    def __init__(self, server: BoundedServer) -> None:
        """Serve from ``start`` on; the server listens already."""
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve until ``close``."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving; ``start`` must have been called."""
        self._server.shutdown()
        self._server.server_close()
