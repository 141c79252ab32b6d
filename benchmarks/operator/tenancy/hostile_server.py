"""A store of a tenant that means harm.

``python -m benchmarks.operator.tenancy.hostile_server KIND PORT``
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable

import bson

from tests.network.mongo_wire import (
    OP_MSG,
    OP_QUERY,
    OP_REPLY,
    Document,
    command_of,
    message,
    receive,
)

DRIP_SECONDS = 0.1
HTTP_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n"
S3_BEGIN = HTTP_OK + b"Content-Length: 9999999\r\n\r\n"
MONGO_BEGIN = struct.pack("<iiii", 9_999_999, 1, 1, 2013)
OP_COMPRESSED, ZLIB = 2012, 2
BOMB_BYTES = 1 << 30
"""Of a reply, which travels as a thousandth of it."""
HELLO: Document = {
    "ok": 1.0,
    "isWritablePrimary": True,
    "ismaster": True,
    "maxWireVersion": 21,
    "minWireVersion": 0,
    "maxBsonObjectSize": 16 << 20,
    "maxMessageSizeBytes": (1 << 31) - 1,
    "maxWriteBatchSize": 100_000,
}
LIST_BEGIN = (
    b'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>'
    b"<IsTruncated>false</IsTruncated>"
)
LIST_PAGE = b"<Contents><Key>model/x</Key><Size>1</Size></Contents>" * 2000


def drip(begin: bytes) -> Callable[[socket.socket], None]:
    """Begin an answer, and then send a byte now and then for ever."""

    def answer(peer: socket.socket) -> None:
        peer.recv(65536)
        peer.sendall(begin)
        while True:
            time.sleep(DRIP_SECONDS)
            peer.sendall(b"\0")

    return answer


def compressed(size: int) -> bytes:
    """The body of a compressed reply of so many zeros."""
    squeezer, block = zlib.compressobj(9), bytes(1 << 20)
    parts = [squeezer.compress(block) for _ in range(size >> 20)]
    return struct.pack("<iiB", OP_MSG, size, ZLIB) + b"".join((*parts, squeezer.flush()))


def greeting(request: int, *, opcode: int) -> bytes:
    """The answer to ``hello`` in the form in which it was asked."""
    if opcode != OP_QUERY:
        return message(request, HELLO)
    body = struct.pack("<iqii", 8, 0, 0, 1) + bson.encode(HELLO)
    return struct.pack("<iiii", 16 + len(body), 1, request, OP_REPLY) + body


def inflating() -> Callable[[socket.socket], None]:
    """Greet as a server of MongoDB, and answer every command with a bomb."""
    bomb = compressed(BOMB_BYTES)

    def answer(peer: socket.socket) -> None:
        while True:
            header, body = receive(peer)
            name = next(iter(command_of(header[3], body))).lower()
            if name in ("hello", "ismaster"):
                peer.sendall(greeting(header[1], opcode=header[3]))
            else:
                head = struct.pack("<iiii", 16 + len(bomb), 1, header[1], OP_COMPRESSED)
                peer.sendall(head + bomb)

    return answer


def endless(peer: socket.socket) -> None:
    """Say that the bucket exists, and answer each listing with keys that never end."""
    while True:
        request = peer.recv(65536)
        if not request:
            return
        if request.startswith(b"HEAD"):
            peer.sendall(HTTP_OK + b"Content-Length: 0\r\n\r\n")
            continue
        peer.sendall(HTTP_OK + b"Transfer-Encoding: chunked\r\n\r\n")
        page = LIST_BEGIN
        while True:
            peer.sendall(f"{len(page):x}\r\n".encode() + page + b"\r\n")
            page = LIST_PAGE


KINDS: dict[str, Callable[[], Callable[[socket.socket], None]]] = {
    "dripping-s3": lambda: drip(S3_BEGIN),
    "dripping-mongo": lambda: drip(MONGO_BEGIN),
    "inflating-mongo": inflating,
    "endless-s3": lambda: endless,
}


def main() -> None:
    """Listen until killed."""
    answer, listener = KINDS[sys.argv[1]](), socket.create_server(("127.0.0.1", int(sys.argv[2])))

    def serve(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError, EOFError):
            answer(peer)

    while True:
        peer, _ = listener.accept()
        threading.Thread(target=serve, args=(peer,), daemon=True).start()


if __name__ == "__main__":
    main()
