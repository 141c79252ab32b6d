"""The connection to the document store: retries, store clock, indexes.

All programs use this synchronous client; asyncio programs call it in threads. Every command is
idempotent or harmless when repeated, so a command whose reply was lost can simply be sent again; on
a replica set the driver retries first. Reads and writes use majority concerns and the primary,
whatever the URI says: fencing depends on it. Writes also ask for the journal (``j``): a standalone
server, and a replica set with ``writeConcernMajorityJournalDefault: false``, otherwise acknowledge
from memory what a crash forgets
(https://www.mongodb.com/docs/manual/reference/write-concern/#acknowledgment-behavior).

A majority read may miss a write of this process whose majority was late. So whoever must know what
became of an own write finds out by another write.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import TypeVar

from bson.errors import BSONError
from pymongo import ASCENDING, ReadPreference
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    NetworkTimeout,
    OperationFailure,
    ProtocolError,
)
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from rl_contracts.errors import AccessDeniedError, CommandRefusedError, StoreUnavailableError
from rl_contracts.stores.clients import mongo_errors, remedies
from rl_contracts.stores.clients.deployment import Deployment, kind_of
from rl_contracts.stores.clients.mongo_client import Stored as Stored
from rl_contracts.stores.clients.mongo_client import connect
from rl_contracts.stores.clients.mongo_errors import STORE, RetriableServerError
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.clients.wait_log import WaitLog

log = logging.getLogger(__name__)

T = TypeVar("T")

MAJORITY_MS = 10_000
"""Milliseconds that a write may wait for the majority before it is sent again."""
CLOCK_CHECK_SECONDS = 60.0

INDEXES: dict[str, list[list[str]]] = {
    "tasks": [["run", "queue", "state"]],
    "rollouts": [["task"], ["run"]],
    "turns": [["task"], ["run"]],
    "batches": [["run"]],
    "evaluations": [["run"]],
    "policies": [["run"]],
    "samplers": [["run"], ["run", "pool", "relay_key"]],
    "leases": [["run"]],
    "models": [["run"]],
}


class Mongo:
    """A database of the document store."""

    def __init__(
        self,
        settings: StoreSettings,
        *,
        patience_seconds: float = 120.0,
        reply_seconds: float = 30.0,
        connections: int | None = None,
    ) -> None:
        """Connect lazily; nothing is sent before the first command.

        Args:
            settings: address and credentials.
            patience_seconds: how long a command is retried while the store does not answer.
            reply_seconds: how long to wait for one reply.
            connections: see ``mongo_client.connect``.

        Raises:
            RefusedError: the URI is invalid or contradicts the certificates.
        """
        self._patience = patience_seconds
        self._client = connect(
            settings,
            timeout_seconds=max(1.0, min(5.0, patience_seconds)),
            reply_seconds=reply_seconds,
            connections=connections,
        )
        self._database: Database[Stored] = self._client.get_database(
            settings.mongo_database,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
            write_concern=WriteConcern("majority", j=True, wtimeout=MAJORITY_MS),
        )
        self._offset = 0.0
        self._offset_checked: float | None = None
        self._hello: Stored = {}
        self._server: tuple[Stored, Stored] | None = None
        """Answers to ``buildInfo`` and ``serverStatus``."""
        self._offset_of: tuple[str, int] | None = None
        """The primary whose clock was measured."""

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def collection(self, name: str) -> Collection[Stored]:
        """A collection; use it inside ``call``."""
        return self._database[name]

    def call(self, doing: str, operation: Callable[[], T]) -> T:
        """Run a command; retry while the store does not answer.

        Args:
            doing: purpose of the command, for messages, e.g. ``claiming a task``.
            operation: sends the command; must be harmless when repeated.

        Raises:
            StoreUnavailableError: after ``patience_seconds``.
            AccessDeniedError, CommandRefusedError: at once, without a retry.
            DuplicateKeyError, BulkWriteError: only for documents that exist already.
        """
        attempts = Retrying(
            retry=retry_if_exception_type((ConnectionFailure, RetriableServerError)),
            stop=stop_after_delay(self._patience),
            wait=wait_random_exponential(multiplier=0.05, max=2.0),
            before_sleep=WaitLog(STORE, doing, patience_seconds=self._patience),
            reraise=True,
        )
        try:
            result: T = attempts(self._send, operation, doing)
        except (ConnectionFailure, RetriableServerError) as error:
            remedy = remedies.remedy(str(error), remedies.MONGO, ca="mongoCa", address="mongoUri")
            raise StoreUnavailableError(
                store=STORE, doing=doing, cause=mongo_errors.short(error), remedy=remedy
            ) from error
        return result

    @staticmethod
    def _send(operation: Callable[[], T], doing: str) -> T:
        try:
            return operation()
        except OperationFailure as error:
            raise mongo_errors.translate(error, doing) from error
        except ProtocolError as error:  # the connection is broken; a new connection may work
            raise RetriableServerError(str(error)) from error
        except ConfigurationError as error:  # mongodb+srv resolves its names only now
            raise RetriableServerError(f"DNS: {error}") from error
        except BSONError as error:
            raise mongo_errors.unwritable(error, doing) from error

    def ping(self) -> None:
        """Check that the store answers; raises the errors of ``call``."""
        self.call("checking whether it answers", lambda: self._database.command("ping"))

    def now(self) -> float:
        """Store time in seconds since 1970: the clock of the primary.

        It is measured once a minute, and when another member has become primary; extrapolated
        between. It may jump when a primary with another clock is elected.
        """
        checked, primary = self._offset_checked, self._client.primary
        elected = primary is not None and primary != self._offset_of
        if checked is None or elected or time.monotonic() - checked > CLOCK_CHECK_SECONDS:
            self._offset = self.call("reading its clock", self._measure_offset)
            self._offset_checked, self._offset_of = time.monotonic(), self._client.primary
        return time.monotonic() + self._offset

    def deployment(self) -> Deployment:
        """What kind of deployment answers; as old as the measurement of ``now``."""
        self.now()
        hello, known = self._hello, self._server
        if known is None:
            build = self.call(
                "asking for its version", lambda: self._client.admin.command("buildInfo")
            )
            known = self._server = (build, self._server_status())
        return kind_of(hello, *known)

    def _server_status(self) -> Stored:
        """Answer to ``serverStatus``; empty where the user may not ask, as with ``readWrite``."""
        left_out = dict.fromkeys(("locks", "metrics", "repl", "tcmalloc", "wiredTiger"), 0)
        command = {"serverStatus": 1, **left_out}
        try:
            return self.call(
                "asking for its storage engine", lambda: self._client.admin.command(command)
            )
        except (AccessDeniedError, CommandRefusedError):
            return {}

    def _measure_offset(self) -> float:
        before = time.monotonic()
        answer = self._hello = self._client.admin.command("hello")
        middle = (before + time.monotonic()) / 2
        return float(answer["localTime"].replace(tzinfo=UTC).timestamp()) - middle

    def ensure_indexes(self, *, build_seconds: float = 0.0) -> None:
        """Create the indexes that do not exist yet.

        Args:
            build_seconds: how long to wait for an index that the server is still building; the
                errors of ``call`` otherwise. The server goes on building when nobody waits, and
                the same command waits again
                (https://www.mongodb.com/docs/manual/core/index-creation/).
        """
        ends = time.monotonic() + build_seconds
        for name, indexes in INDEXES.items():
            for fields in indexes:
                self._index(name, fields, ends=ends)

    def _index(self, name: str, fields: Sequence[str], *, ends: float) -> None:
        keys = [(field, ASCENDING) for field in fields]
        while True:
            try:
                self.call(f"indexing {name}", lambda: self.collection(name).create_index(keys))
                return
            except StoreUnavailableError as error:
                building = isinstance(error.__cause__, NetworkTimeout)  # connected, no reply yet
                if not building or time.monotonic() > ends:
                    raise
                log.info("the %s is still indexing %s", STORE, name)

    def drop_database(self) -> None:
        """Delete the whole database."""
        name = self._database.name
        self.call(f"dropping database {name}", lambda: self._client.drop_database(name))

    def delete_page(self, run: str, *, most: int = 2000) -> int:
        """Delete some documents of a run, but not the run itself; return how many were read.

        Called again until it returns 0, it leaves the run alone; each command stays short.
        """
        for name in INDEXES:
            documents = self.call(
                f"reading {name} of run {run}",
                lambda: list(self.collection(name).find({"run": run}, {"_id": 1}, limit=most)),  # noqa: B023
            )
            ids = [document["_id"] for document in documents]
            if ids:
                self.call(
                    f"deleting {name} of run {run}",
                    lambda: self.collection(name).delete_many({"_id": {"$in": ids}}),  # noqa: B023
                )
                return len(ids)
        return 0

    def delete_run(self, run: str) -> int:
        """Delete all documents of a run, the run itself last; return how many existed."""
        deleted = 0
        for name in INDEXES:
            deleted += self.call(
                f"deleting {name} of run {run}",
                lambda: self.collection(name).delete_many({"run": run}).deleted_count,  # noqa: B023
            )
        return deleted + self.call(
            f"deleting run {run}",
            lambda: self.collection("runs").delete_one({"_id": run}).deleted_count,
        )
