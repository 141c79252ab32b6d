from __future__ import annotations

import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NoReturn

import pytest

from rl_contracts.http_server import THREADS, BoundedServer


def test_connections_for_which_no_thread_can_start_take_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_thread(*_: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadingHTTPServer, "process_request", no_thread)
    with BoundedServer(("127.0.0.1", 0), BaseHTTPRequestHandler, connections=1) as server:
        for _ in range(THREADS + 1):
            with socket.socket() as connection, pytest.raises(RuntimeError, match="new thread"):
                server.process_request(connection, ("127.0.0.1", 1))
