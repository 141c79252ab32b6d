"""Whatever answers instead of a reader costs the operator a bounded time and memory."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from rl_contracts.reader import RUNS, RunsAnswer, RunsRequest
from rl_operator.stores import reader_client
from rl_operator.stores.reader_client import NoAnswerError

Behave = Callable[[socket.socket, threading.Event], None]
OK = b"HTTP/1.0 200 OK\r\n"


@contextlib.contextmanager
def server(behave: Behave) -> Iterator[int]:
    """The port of a server that behaves so towards its only client."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                behave(connection, over)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        over.set()
        thread.join()


def drips(connection: socket.socket, over: threading.Event) -> None:
    while not over.wait(0.02):
        connection.sendall(b"H")


def drips_a_header(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(OK + b"X: ")
    drips(connection, over)


def hangs(connection: socket.socket, over: threading.Event) -> None:
    over.wait()


def floods(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(OK + b"\r\n")
    while not over.is_set():
        connection.sendall(b" " * 65536)


def says(text: bytes) -> Behave:
    return lambda connection, over: connection.sendall(text)


BEHAVIOURS: dict[str, tuple[Behave, str]] = {
    "drips": (drips, "no answer within 0 s"),
    "drips a header": (drips_a_header, "no answer within 0 s"),
    "hangs": (hangs, "no answer within 0 s"),
    "floods": (floods, "larger than 0 MiB|no answer within 0 s"),
    "says nothing": (says(b""), "without an answer"),
    "is no HTTP server": (says(b"SSH-2.0\r\n\r\n"), "without an answer"),
    "refuses": (says(b"HTTP/1.0 401 No\r\n\r\n"), "HTTP status 401"),
    "has another form": (says(OK + b"\r\n{}"), "another form"),
    "nests deeply": (says(OK + b"\r\n" + b"[" * 50_000), "another form"),
}


@pytest.mark.parametrize(("behave", "cause"), BEHAVIOURS.values(), ids=BEHAVIOURS.keys())
def test_answer_is_bounded_whatever_the_server_does(
    behave: Behave, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_client, "SECONDS", 0.3)
    monkeypatch.setattr(reader_client, "ANSWER_BYTES", 1 << 18)
    began = time.monotonic()
    with server(behave) as port, pytest.raises(NoAnswerError, match=cause):
        reader_client.ask("127.0.0.1", RUNS, RunsRequest(runs=()), RunsAnswer, token="t", port=port)
    assert time.monotonic() - began < 20.0  # the machine is busy; without a deadline: never
