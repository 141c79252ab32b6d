"""One request to a reader, bounded in time and bytes whatever answers.

Whoever may make pods in a namespace can put a server of their own behind a reader's name. It may
send a byte a second, endless headers or gigabytes: the deadline is that of the whole exchange, and
reading ends at the limit. HTTP/1.0 with a connection per request needs no more than this.
"""

from __future__ import annotations

import re
import socket
import time
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from rl_contracts.errors import RLError
from rl_contracts.reader import ANSWER_BYTES, PORT

CONNECT_SECONDS = 2.0
SECONDS = 8.0
"""Longest time of one request; a reader answers after 5 s at the latest."""
HEADER_BYTES = 16 << 10
PIECE = 1 << 16
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})\b")

T = TypeVar("T", bound=BaseModel)


class NoAnswerError(RLError):
    """A reader did not give a usable answer."""


def ask(
    address: str, path: str, body: BaseModel, answer: type[T], *, token: str, port: int = PORT
) -> T:
    """Post a message to a reader and parse its answer.

    Raises:
        NoAnswerError: no answer in time, or none that can be used.
    """
    text = body.model_dump_json().encode()
    head = (
        f"POST {path} HTTP/1.0\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    try:
        status, content = _exchange(address, port, head.encode() + text)
    except OSError as error:
        raise NoAnswerError(_cause(error)) from error
    if status != 200:
        raise NoAnswerError(f"it answered with HTTP status {status}")
    try:
        return answer.model_validate_json(content)
    except ValidationError as error:
        raise NoAnswerError("its answer has another form") from error


def _exchange(address: str, port: int, request: bytes) -> tuple[int, bytes]:
    deadline = time.monotonic() + SECONDS
    with socket.create_connection((address, port), CONNECT_SECONDS) as connection:
        connection.settimeout(_left(deadline))
        connection.sendall(request)
        received = bytearray()
        while piece := _receive(connection, deadline):
            received += piece
            if len(received) > ANSWER_BYTES + HEADER_BYTES:
                raise NoAnswerError(f"its answer is larger than {ANSWER_BYTES >> 20} MiB")
    head, separator, content = bytes(received).partition(b"\r\n\r\n")
    status = STATUS.match(head)
    if status is None or not separator:
        raise NoAnswerError("it ended the connection without an answer")
    return int(status[1]), content


def _receive(connection: socket.socket, deadline: float) -> bytes:
    connection.settimeout(_left(deadline))
    return connection.recv(PIECE)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _cause(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {SECONDS:.0f} s"
    return error.strerror or type(error).__name__
