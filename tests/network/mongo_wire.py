"""MongoDB's wire protocol (OP_MSG, OP_QUERY, OP_REPLY) and SCRAM-SHA-256 from a server's side."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import struct
from typing import Any

import bson

OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
ITERATIONS = 4096
UNAUTHORIZED, AUTHENTICATION_FAILED, NOT_WRITABLE_PRIMARY = 13, 18, 10107
WITHOUT_LOGIN = {"hello", "ismaster", "isMaster", "saslStart", "saslContinue", "ping"}
Document = dict[str, Any]


class Scram:
    """The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677) for one user."""

    def __init__(self, user: tuple[str, str]) -> None:
        self._user, password = user
        self._salt = secrets.token_bytes(16)
        self._salted = hashlib.pbkdf2_hmac("sha256", password.encode(), self._salt, ITERATIONS)
        self._first = ""
        self.passed = False

    def answer(self, name: str, command: Document) -> Document | None:
        if name == "saslStart":
            return self._start(bytes(command["payload"]).decode())
        if name == "saslContinue":
            return self._check(bytes(command["payload"]).decode())
        if name in WITHOUT_LOGIN:
            return None
        return refusal(UNAUTHORIZED, f"command {name} requires authentication")

    def _start(self, payload: str) -> Document:
        bare = payload.split(",", 2)[2]
        fields = dict(part.split("=", 1) for part in bare.split(","))
        if fields["n"] != self._user:
            return refusal(AUTHENTICATION_FAILED, "Authentication failed.")
        nonce = fields["r"] + secrets.token_hex(12)
        salt = base64.b64encode(self._salt).decode()
        first = f"r={nonce},s={salt},i={ITERATIONS}"
        self._first = f"{bare},{first}"
        return {"conversationId": 1, "done": False, "payload": first.encode(), "ok": 1.0}

    def _check(self, payload: str) -> Document:
        if self.passed:
            return {"conversationId": 1, "done": True, "payload": b"", "ok": 1.0}
        without_proof, proof = payload.rsplit(",p=", 1)
        auth = f"{self._first},{without_proof}".encode()
        key = hmac.digest(self._salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(key).digest(), auth, "sha256")
        wanted = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        if not hmac.compare_digest(wanted, base64.b64decode(proof)):
            return refusal(AUTHENTICATION_FAILED, "Authentication failed.")
        self.passed = True
        server = hmac.digest(hmac.digest(self._salted, b"Server Key", "sha256"), auth, "sha256")
        verifier = b"v=" + base64.b64encode(server)
        return {"conversationId": 1, "done": True, "payload": verifier, "ok": 1.0}


def refusal(code: int, message: str) -> Document:
    return {"ok": 0.0, "errmsg": message, "code": code}


def receive(peer: socket.socket) -> tuple[tuple[int, ...], bytes]:
    header = struct.unpack("<iiii", exactly(peer, 16))
    return header, exactly(peer, header[0] - 16)


def exactly(peer: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = peer.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def whole(header: tuple[int, ...], body: bytes) -> bytes:
    return struct.pack("<iiii", *header) + body


def command_of(opcode: int, body: bytes) -> Document:
    if opcode == OP_QUERY:
        end = body.index(b"\0", 4)
        return dict(bson.decode(body[end + 9 :]))
    (size,) = struct.unpack("<i", body[5:9])
    command = dict(bson.decode(body[5 : 5 + size]))
    rest = body[5 + size :]
    while rest and rest[0] == 1:  # a document sequence
        (length,) = struct.unpack("<i", rest[1:5])
        name, _, documents = rest[5 : 1 + length].partition(b"\0")
        command[name.decode()] = bson.decode_all(documents)
        rest = rest[1 + length :]
    return command


def message(request: int, document: Document) -> bytes:
    body = b"\0\0\0\0\0" + bson.encode(document)
    return struct.pack("<iiii", 16 + len(body), request, request, OP_MSG) + body
