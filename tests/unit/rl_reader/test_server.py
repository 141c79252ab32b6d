from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator

from pydantic import BaseModel

from rl_contracts.http_server import CONNECTIONS
from rl_contracts.reader import HEALTH, token_hash
from rl_reader.server import Server
from tests.network.crowd import crowding, drip, seconds_to_answer
from tests.waiting import HUNG_SECONDS

PATH = "/v1/answer"


class Answer(BaseModel):
    text: str


@contextlib.contextmanager
def a_reader(go_on: threading.Event) -> Iterator[int]:
    def answer(body: bytes) -> Answer:
        go_on.wait(HUNG_SECONDS)
        return Answer(text=body.decode())

    server = Server(("127.0.0.1", 0), {PATH: answer}, token_sha256=token_hash("t"))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        go_on.set()
        server.shutdown()
        server.server_close()


def test_a_crowd_neither_delays_probes_nor_ends_a_request_that_is_being_answered() -> None:
    go_on = threading.Event()
    with a_reader(go_on) as port:
        operator = http.client.HTTPConnection("127.0.0.1", port, timeout=HUNG_SECONDS)
        operator.request("POST", PATH, body=b"hello", headers={"Authorization": "Bearer t"})
        with crowding(port, silent=3 * CONNECTIONS, dripping=20) as drips:
            drip(drips)
            assert seconds_to_answer(port, HEALTH) < 1
            go_on.set()
            assert Answer.model_validate_json(operator.getresponse().read()).text == "hello"
        operator.close()
