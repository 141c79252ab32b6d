"""Live pages of many viewers: none keeps the others out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest
from starlette.types import Receive, Scope, Send

from rl_console.dashboard import connections
from rl_console.dashboard.connections import YieldingConnection
from rl_console.dashboard.streams import Streams
from tests.network.served import served


def test_a_viewer_with_fewer_pages_gets_the_oldest_place_of_the_one_with_the_most() -> None:
    streams = Streams(4)
    of_many = [streams.take("many") for _ in range(4)]
    assert all(of_many)
    assert not streams.has_place("many")
    assert streams.take("many") is None
    first, second = streams.take("few"), streams.take("few")
    assert [each.over.is_set() for each in of_many if each] == [True, True, False, False]
    assert streams.take("few") is None, "both have two"
    assert streams.take("another") is not None, "and a third has none"
    assert first
    assert second
    streams.leave(second)
    streams.leave(second)
    assert streams.has_place("many")


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers each request."""
    start = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    await send(start)
    await send({"type": "http.response.body", "body": b"ok"})


def test_silent_connections_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 3)
    with served(hello, http=YieldingConnection, limit_concurrency=6, lifespan="off") as port:

        @contextlib.contextmanager
        def connected() -> Iterator[socket.socket]:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as made:
                yield made

        def is_answered(made: socket.socket) -> bool:
            made.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            return made.recv(4096).startswith(b"HTTP/1.1 200")

        with contextlib.ExitStack() as stack:
            silent = [stack.enter_context(connected()) for _ in range(12)]
            assert silent[0].recv(1) == b"", "the oldest has ended"
            for _ in range(3):
                assert is_answered(stack.enter_context(connected()))


def test_a_live_page_ends_as_soon_as_its_place_is_given_away() -> None:
    async def run() -> None:
        streams = Streams(2)
        page = streams.take("many")
        assert page
        streams.take("many")
        waiting = asyncio.create_task(page.over.wait())
        streams.take("few")
        await asyncio.wait_for(waiting, 30)

    asyncio.run(run())
