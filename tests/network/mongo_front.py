"""A front before the embedded document store that adds what it lacks: TLS, SCRAM, roles, outages.

It forwards commands as they are, so that the answers are the real store's, and keeps the bodies
for tests to look at. What it adds follows MongoDB's wire protocol (OP_MSG, OP_QUERY, OP_REPLY) and
RFC 7677; the client's side of both is PyMongo's own. Behaviours of a replica set that it plays, by
the pages of MongoDB's manual (https://www.mongodb.com/docs/manual/ + path):

- A write whose majority is late is applied and stays applied; its answer has ``ok: 1`` and
  ``writeConcernError`` with ``code: 64``, ``codeName``, ``errmsg`` and ``errInfo`` (``wtimeout:
  true``, ``writeConcern`` with ``w``, ``wtimeout``, ``provenance``):
  ``reference/write-concern/#wtimeout``, ``reference/command/findAndModify/#output``,
  ``reference/command/insert/#output``.
- Meanwhile a read with ``readConcern: {level: "majority"}`` returns only what a majority has
  acknowledged, so it may not see the reader's own write: ``reference/read-concern-majority/``,
  ``core/causal-consistency-read-write-concerns/``. A write sees the newest data of the primary:
  ``core/read-isolation-consistency-recency/``.
- ``hello`` of a member has ``setName``, ``hosts``, ``me``, ``setVersion``, ``electionId``,
  ``primary``, ``isWritablePrimary`` and ``secondary``; ``localTime`` is the clock of the member
  that answers; a standalone has none of the members' fields: ``reference/command/hello/``.
- A scan is no snapshot: it may miss a document that is updated meanwhile. By an index whose keys
  the update changes, the document may move to where the scan has passed:
  ``core/read-isolation-consistency-recency/#cursor-snapshot``. ``_id`` never changes.
- A document holds at most 16 MiB; a server refuses a larger one with code 10334
  (BSONObjectTooLarge): ``reference/limits/#bson-documents``. The embedded store takes it.
- A command that fails has ``ok: 0``, ``code``, ``codeName`` and ``errmsg``:
  ``reference/error-codes/``.
- A member that is not primary refuses commands with code 10107 (NotWritablePrimary), and
  ``electionId`` grows with every election: ``reference/error-codes/``,
  ``core/replica-set-elections/``.

No test here talks to a real replica set.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import bson
from pymongo import MongoClient

from tests.network.mongo_wire import (
    NOT_WRITABLE_PRIMARY,
    OP_MSG,
    OP_REPLY,
    UNAUTHORIZED,
    Document,
    Scram,
    command_of,
    message,
    receive,
    refusal,
    whole,
)

READS = {"hello", "ismaster", "isMaster", "ping"}
MAX_BSON_BYTES = (16 << 20) + (16 << 10)
"""With the allowance for the fields of a command."""
WRITES = {"insert", "update", "delete", "findAndModify"}


def late_majority(concern: Document) -> Document:
    """``writeConcernError`` of a write that was applied and whose ``wtimeout`` ran out."""
    return {
        "code": 64,
        "codeName": "WriteConcernTimeout",
        "errmsg": "waiting for replication timed out",
        "errInfo": {"wtimeout": True, "writeConcern": {**concern, "provenance": "clientSupplied"}},
    }


@dataclass
class Front:
    """One listening front.

    Attributes:
        backend: port of the embedded store.
        context: speaks TLS by it; None: plain TCP.
        user: name and password that SCRAM-SHA-256 wants; None: everybody is let in.
        role: what ``hello`` says that it is.
        commands: every command that was forwarded.
        last: given a command and the store's answer, whether this answer is the first that gets
            lost: from then on the front is away.
        away: it hangs up on everybody.
        concern_error: given a write command, the ``writeConcernError`` that is added to the
            store's answer, or None; the write itself stands.
        refuse: given a command, the code and name of the error that it is refused with, or None.
        moves: moves a task backwards in the index of ``run``, ``queue`` and ``state`` in the middle
            of the next scan of that index, and returns its id.
        hook: called with each command before it is forwarded, and may wait.
        clock_ahead: seconds that its ``localTime`` is ahead of the store's.
        peers: ports of the members of its replica set; empty: it is the only member.
        election: number of its election as primary; the highest wins.
        mongod: it hides that the store is the embedded one.
        persistent: what ``serverStatus`` says of its storage engine
            (``reference/command/serverStatus/#storageengine``); None: the user may not ask.
    """

    backend: int
    context: ssl.SSLContext | None = None
    user: tuple[str, str] | None = None
    role: str = "standalone"
    commands: list[Document] = field(default_factory=list, init=False, repr=False)
    last: Callable[[Document, Document], bool] | None = None
    away: bool = False
    concern_error: Callable[[Document], Document | None] | None = None
    refuse: Callable[[Document], tuple[int, str] | None] | None = None
    moves: Callable[[], str] | None = None
    hook: Callable[[Document], object] | None = None
    clock_ahead: float = 0.0
    peers: list[int] = field(default_factory=list)
    election: int = 1
    mongod: bool = False
    persistent: bool | None = None
    port: int = 0
    _stale: str = ""
    """Database that majority reads are answered from while the majority lags."""

    def of(self, name: str) -> list[Document]:
        """Forwarded commands of one name."""
        return [command for command in self.commands if next(iter(command)) == name]

    @property
    def settings(self) -> dict[str, str]:
        """Keys of the stores' Secret by which one asks through it."""
        return {"mongoUri": f"mongodb://127.0.0.1:{self.port}/"}

    def lose(self, wanted: Callable[[Document, Document], bool]) -> None:
        """Go away with an answer: what the command did stands, and nobody is told."""
        self.last = wanted

    def come_back(self) -> None:
        """Answer again."""
        self.away = False

    @contextmanager
    def lagging_majority(self, database: str) -> Iterator[None]:
        """Inside, writes are applied but time out, and majority reads show the state before."""
        stale = f"{database}_stale"
        with MongoClient[Document]("127.0.0.1", self.backend) as client:
            for name in client[database].list_collection_names():
                documents = list(client[database][name].find())
                if documents:
                    client[stale][name].insert_many(documents)
            self._stale = stale
            self.concern_error = lambda command: late_majority(command["writeConcern"])
            try:
                yield
            finally:
                self._stale, self.concern_error = "", None
                client.drop_database(stale)

    def serve(self, raw: socket.socket) -> None:
        with suppress(OSError, ssl.SSLError, EOFError), raw:
            client = self.context.wrap_socket(raw, server_side=True) if self.context else raw
            with client, socket.create_connection(("127.0.0.1", self.backend)) as store:
                conversation = Scram(self.user) if self.user else None
                while True:
                    self._pass(client, store, conversation)

    def _pass(self, client: socket.socket, store: socket.socket, scram: Scram | None) -> None:
        header, body = receive(client)
        self._hang_up_while_away()
        request, opcode = header[1], header[3]
        command = command_of(opcode, body)
        name = next(iter(command))
        if scram is not None and (name.startswith("sasl") or not scram.passed):
            answer = scram.answer(name, command)
            if answer is not None:
                client.sendall(message(request, answer))
                return
        if self.role == "secondary" and name not in READS:
            client.sendall(message(request, refusal(NOT_WRITABLE_PRIMARY, "not primary")))
            return
        refused = (self.refuse and self.refuse(command)) or _too_large(command)
        if refused:
            code, code_name = refused
            answer = refusal(code, f"{name} was refused") | {"codeName": code_name}
            client.sendall(message(request, answer))
            return
        self.commands.append(command)
        if self.hook is not None:
            self.hook(command)
        # The store knows no transactions: their numbers are the driver's business with a primary.
        known = {key: value for key, value in command.items() if key != "txnNumber"}
        if self._stale and command.get("readConcern") == {"level": "majority"}:
            known["$db"] = self._stale
        forwarded = message(request, known) if opcode == OP_MSG else whole(header, body)
        store.sendall(forwarded)
        header, body = receive(store)
        last = self.last
        if last and header[3] == OP_MSG and last(command, command_of(OP_MSG, body)):
            self.last, self.away = None, True
        self._hang_up_while_away()
        if name in ("hello", "ismaster", "isMaster"):
            client.sendall(self._hello(header, body))
        elif (changed := self._changed(command, body)) is not None:
            client.sendall(message(request, changed))
        else:
            client.sendall(whole(header, body))

    def _changed(self, command: Document, body: bytes) -> Document | None:
        """The answer in place of the store's; None: the store's."""
        name, concern_error, moves = next(iter(command)), self.concern_error, self.moves
        if name == "buildInfo" and self.mongod:
            build = command_of(OP_MSG, body)
            return {key: build[key] for key in build if not key.startswith("ferretdb")}
        if name == "serverStatus" and self.mongod:
            if self.persistent is None:
                return refusal(UNAUTHORIZED, "not authorized on admin to execute serverStatus")
            return {"ok": 1.0, "storageEngine": {"persistent": self.persistent}}
        if name == "find" and command["find"] == "tasks" and moves:
            self.moves = None
            return self._scan(command, command_of(OP_MSG, body), moves)
        if name in WRITES and concern_error and (added := concern_error(command)):
            return {**command_of(OP_MSG, body), "writeConcernError": added}
        return None

    def _scan(self, command: Document, answer: Document, moves: Callable[[], str]) -> Document:
        missed = "" if command.get("hint") == "_id_" else moves()
        if not missed:
            moves()
        cursor = answer["cursor"]
        seen = [document for document in cursor["firstBatch"] if document["_id"] != missed]
        return {**answer, "cursor": {**cursor, "firstBatch": seen}}

    def _hang_up_while_away(self) -> None:
        if self.away:
            raise EOFError

    def _hello(self, header: tuple[int, ...], body: bytes) -> bytes:
        start = 20 if header[3] == OP_REPLY else 5
        answer = bson.decode(body[start:])
        answer["localTime"] += timedelta(seconds=self.clock_ahead)
        if self.role != "standalone":
            me = f"127.0.0.1:{self.port}"
            primary = self.role == "primary"
            answer |= {
                "setName": "rs0",
                "hosts": [f"127.0.0.1:{port}" for port in self.peers or [self.port]],
                "me": me,
                "setVersion": 1,
                "isWritablePrimary": primary,
                "ismaster": primary,
                "secondary": not primary,
            }
            if primary and self.peers:
                answer |= {"electionId": bson.ObjectId(f"{self.election:024x}"), "primary": me}
        if self.user:
            answer["saslSupportedMechs"] = ["SCRAM-SHA-256"]
        reply = body[:start] + bson.encode(answer)
        return struct.pack("<iiii", 16 + len(reply), *header[1:]) + reply


def _too_large(command: Document) -> tuple[int, str] | None:
    documents = [*command.get("documents", []), *command.get("updates", [])]
    if any(len(bson.encode(document)) > MAX_BSON_BYTES for document in documents):
        return 10334, "BSONObjectTooLarge"
    return None


@contextmanager
def front_of(backend_port: int, **options: Any) -> Iterator[Front]:
    """A front on a port of its own."""
    front = Front(backend=backend_port, **options)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        front.port = listener.getsockname()[1]
        open_ones: list[socket.socket] = []

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    open_ones.append(client)
                    threading.Thread(target=front.serve, args=[client], daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield front
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for connection in open_ones:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def front_before(uri: str) -> Iterator[Front]:
    """A front before the store of a URI."""
    port = urlsplit(uri).port
    assert port is not None
    with front_of(port) as front:
        yield front


def takes_a_task(command: Document, answer: Document) -> bool:
    """Whether it is a claim that took something."""
    return command.get("findAndModify") == "tasks" and answer.get("value") is not None
