from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator

from rl_operator.process.data_endpoint import PATH, REQUESTS, TOKEN_HEADER, DataEndpoint
from tests.waiting import HUNG_SECONDS

HEAD = f"POST {PATH} HTTP/1.1\r\nContent-Length: 100\r\n\r\n".encode()


@contextlib.contextmanager
def an_endpoint(answer: threading.Event) -> Iterator[DataEndpoint]:
    """An endpoint that answers with the token once the event is set."""

    def answering(token: str, body: bytes) -> tuple[int, bytes]:
        answer.wait(HUNG_SECONDS)
        return 200, token.encode()

    endpoint = DataEndpoint(0)
    endpoint.serve(answering)
    endpoint.start()
    try:
        yield endpoint
    finally:
        answer.set()
        endpoint.close()


def asking(endpoint: DataEndpoint) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=HUNG_SECONDS)
    connection.request("POST", PATH, b"{}", {TOKEN_HEADER: "mine"})
    return connection


def test_requests_that_are_never_sent_to_their_end_keep_no_viewer_out() -> None:
    answer = threading.Event()
    answer.set()
    with an_endpoint(answer) as endpoint, contextlib.ExitStack() as stack:
        for _ in range(REQUESTS + 1):
            address = ("127.0.0.1", endpoint.port)
            silent = stack.enter_context(socket.create_connection(address, timeout=HUNG_SECONDS))
            silent.sendall(HEAD)
        for _ in range(2 * REQUESTS):  # each in a thread of its own, as are the silent ones
            given = asking(endpoint).getresponse()
            assert (given.status, given.read()) == (200, b"mine")


def test_viewers_beyond_the_limit_are_sent_away_at_once() -> None:
    answer = threading.Event()
    with an_endpoint(answer) as endpoint:
        waiting = [asking(endpoint) for _ in range(REQUESTS + 1)]
        refused = threading.Event()
        statuses: list[int] = []

        def read(connection: http.client.HTTPConnection) -> None:
            statuses.append(connection.getresponse().status)
            refused.set()

        readers = [threading.Thread(target=read, args=(each,)) for each in waiting]
        for each in readers:
            each.start()
        assert refused.wait(HUNG_SECONDS)
        assert statuses == [503]
        answer.set()
        for each in readers:
            each.join()
        assert sorted(statuses) == [200] * REQUESTS + [503]
