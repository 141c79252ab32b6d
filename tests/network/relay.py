"""A way to a server that a test cuts: those who come by it lose the server, and others do not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

CHUNK_BYTES = 1 << 16
Line = bytes
"""The first line of a request, without its end."""


@dataclass
class Relay:
    """Passes connections on to a server of this machine.

    Attributes:
        backend: the server's port.
        cut_by: given the first line of a request, whether the way is cut before it is passed on;
            asked while the way is open.
        refuses: given the first line of a request, whether it alone is hung up on.
        port: where it listens.
    """

    backend: int
    cut_by: Callable[[Line], bool] = lambda _: False
    refuses: Callable[[Line], bool] = lambda _: False
    port: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: set[socket.socket] = field(default_factory=set)
    _away: bool = False

    def cut(self) -> None:
        """Hang up on everybody, and on whoever comes."""
        with self._lock:
            self._away = True
            for end in self._open:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Pass connections on again."""
        with self._lock:
            self._away = False

    def serve(self, listener: socket.socket) -> None:
        """Take connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, suppress(OSError), self._connected() as server:
            ends = {client, server}
            with self._lock:
                if self._away:
                    return
                self._open |= ends
            back = threading.Thread(target=self._pass, args=(server, client), daemon=True)
            back.start()
            self._pass(client, server, look=True)
            back.join()
            with self._lock:
                self._open -= ends

    def _connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.backend))

    def _pass(self, source: socket.socket, sink: socket.socket, *, look: bool = False) -> None:
        """Pass one direction on until either end hangs up."""
        with suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                if look and self._hangs_up(chunk):
                    break
                sink.sendall(chunk)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _hangs_up(self, chunk: bytes) -> bool:
        line, end, _ = chunk.partition(b"\r\n")
        if not end or not line.endswith(b" HTTP/1.1"):
            return False
        if self.cut_by(line):
            self.cut()
            return True
        return self.refuses(line)


@contextmanager
def relayed(backend: int) -> Iterator[Relay]:
    """A relay before a server's port, until the block ends."""
    relay = Relay(backend)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        relay.port = listener.getsockname()[1]
        thread = threading.Thread(target=relay.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield relay
        finally:
            relay.cut()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
