"""Clients that occupy a server: silent ones, and ones that send a byte now and then."""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.request
from collections.abc import Iterator

HEAD = b"GET /metrics HTTP/1.1\r\nX-Pad: "


@contextlib.contextmanager
def crowding(port: int, *, silent: int, dripping: int) -> Iterator[list[socket.socket]]:
    """Connect, and keep the connections until the block ends; gives the dripping ones.

    Args:
        port: on the loopback interface.
        silent: connections on which nothing is sent.
        dripping: connections that sent the beginning of a request's head.
    """
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            for _ in range(silent + dripping)
        ]
        drips = made[silent:]
        drip(drips, HEAD)
        yield drips


def drip(connections: list[socket.socket], data: bytes = b"x") -> None:
    """Send a little more on each; those that the server has ended stay silent."""
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.sendall(data)


def await_turn(port: int, path: str) -> None:
    """Wait until the server has accepted whoever came before: each costs it a thread.

    A thousand at once take a second and more where other work keeps the processors busy, which says
    nothing of how a request fares beside connections that are open.
    """
    seconds_to_answer(port, path)


def seconds_to_answer(port: int, path: str) -> float:
    """Time until a request is answered with 200."""
    began = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
        assert response.status == 200
        response.read()
    return time.monotonic() - began
