from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from rl_contracts.http_server import THREADS
from rl_operator.process import endpoint as endpoints
from rl_operator.process.endpoint import CONNECTIONS, Endpoint
from tests.network.crowd import await_turn, crowding, drip, seconds_to_answer
from tests.waiting import until


@contextlib.contextmanager
def an_endpoint() -> Iterator[int]:
    endpoint = Endpoint(0, healthy=lambda: True, ready=lambda: True)
    endpoint.start()
    try:
        yield endpoint.port
    finally:
        endpoint.close()


def test_idle_and_dripping_clients_neither_delay_probes_nor_take_threads() -> None:
    before = threading.active_count()
    with an_endpoint() as port, crowding(port, silent=900, dripping=100) as drips:
        await_turn(port, "/healthz")
        for path in ("/healthz", "/readyz", "/metrics") * 3:
            drip(drips)
            assert seconds_to_answer(port, path) < 1
            assert threading.active_count() - before <= THREADS * CONNECTIONS + 1
    until(lambda: threading.active_count() <= before, what="the end of all threads")


def test_a_silent_client_is_sent_away_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "SOCKET_SECONDS", 0.2)
    with an_endpoint() as port, crowding(port, silent=0, dripping=1) as drips:
        assert drips[0].recv(1) == b"", "the server has closed the connection"
