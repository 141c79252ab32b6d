"""The connection to the document store: patience with outages, its clock, its indexes.

One synchronous client serves all programs; asyncio programs call it in threads. Every command is
idempotent or harmless when repeated, so that one whose reply was lost can simply be sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC
from typing import Any, TypeVar

from pymongo import ASCENDING, MongoClient
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    InvalidURI,
    OperationFailure,
    PyMongoError,
)
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from rl_contracts.errors import AccessDeniedError, Refusal, RefusedError, StoreUnavailableError
from rl_contracts.stores.settings import StoreSettings

T = TypeVar("T")
Stored = dict[str, Any]

STORE = "document store"
ACCESS_CODES = {13, 18}  # Unauthorized, AuthenticationFailed
RETRIABLE_CODES = {
    6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436,
}  # fmt: skip  # the codes that MongoDB's specification of retryable writes lists
CLOCK_CHECK_SECONDS = 60.0

INDEXES: dict[str, list[list[str]]] = {
    "tasks": [["run", "queue", "state"]],
    "rollouts": [["task"]],
    "batches": [["run"]],
    "policies": [["run"]],
    "samplers": [["run"]],
}


class _RetriableServerError(PyMongoError):
    """A server's own word that trying again may help."""


class Mongo:
    """One database of the document store."""

    def __init__(self, settings: StoreSettings, *, patience_seconds: float = 120.0) -> None:
        """Connect lazily; nothing is sent before the first command.

        Args:
            settings: where.
            patience_seconds: how long a command is repeated while the store does not answer.

        Raises:
            RefusedError: when the URI cannot be one.
        """
        self._patience = patience_seconds
        timeout = int(1000 * max(1.0, min(5.0, patience_seconds)))
        try:
            self._client: MongoClient[Stored] = MongoClient(
                settings.mongo_uri.get_secret_value(),
                serverSelectionTimeoutMS=timeout,
                connectTimeoutMS=timeout,
                socketTimeoutMS=30_000,
                retryWrites=False,  # ours: the embedded store has no sessions
                retryReads=False,
                appname="rl-operator",
            )
        except (InvalidURI, ConfigurationError) as error:
            raise RefusedError(_bad_uri()) from error
        self._database: Database[Stored] = self._client[settings.mongo_database]
        self._offset = 0.0
        self._offset_checked: float | None = None

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def collection(self, name: str) -> Collection[Stored]:
        """A collection; use it inside ``call``."""
        return self._database[name]

    def call(self, doing: str, operation: Callable[[], T]) -> T:
        """Run one command, again and again while the store does not answer.

        Args:
            doing: what for, for the error, e.g. ``claiming a task``.
            operation: sends one command; must be harmless when repeated.

        Raises:
            StoreUnavailableError: after ``patience_seconds``.
            AccessDeniedError: at once.
        """
        attempts = Retrying(
            retry=retry_if_exception_type((ConnectionFailure, _RetriableServerError)),
            stop=stop_after_delay(self._patience),
            wait=wait_random_exponential(multiplier=0.05, max=2.0),
            reraise=True,
        )
        try:
            result: T = attempts(self._send, operation, doing)
        except (ConnectionFailure, _RetriableServerError) as error:
            raise StoreUnavailableError(store=STORE, doing=doing, cause=_short(error)) from error
        return result

    @staticmethod
    def _send(operation: Callable[[], T], doing: str) -> T:
        try:
            return operation()
        except OperationFailure as error:
            if error.code in ACCESS_CODES:
                cause = _short(error)
                raise AccessDeniedError(store=STORE, doing=doing, cause=cause) from error
            if error.code in RETRIABLE_CODES:
                raise _RetriableServerError(str(error)) from error
            raise

    def ping(self) -> None:
        """Ask for an answer; raises as ``call`` does."""
        self.call("asking for a sign of life", lambda: self._database.command("ping"))

    def now(self) -> float:
        """The store's clock, seconds since 1970; measured once a minute, else extrapolated."""
        checked = self._offset_checked
        if checked is None or time.monotonic() - checked > CLOCK_CHECK_SECONDS:
            self._offset = self.call("reading its clock", self._measure_offset)
            self._offset_checked = time.monotonic()
        return time.monotonic() + self._offset

    def _measure_offset(self) -> float:
        before = time.monotonic()
        answer = self._client.admin.command("hello")
        middle = (before + time.monotonic()) / 2
        return float(answer["localTime"].replace(tzinfo=UTC).timestamp()) - middle

    def ensure_indexes(self) -> None:
        """Create the indexes that claims and look-ups use; does nothing where they are."""
        for name, indexes in INDEXES.items():
            for fields in indexes:
                keys = [(field, ASCENDING) for field in fields]
                self.call(f"indexing {name}", lambda: self.collection(name).create_index(keys))  # noqa: B023

    def delete_run(self, run: str) -> int:
        """Delete every document of a run, the run itself last; return how many there were."""
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


def _short(error: Exception) -> str:
    text = str(error).split(", full error:")[0].split(", Timeout:")[0]
    return text if len(text) <= 300 else text[:299] + "…"


def _bad_uri() -> Refusal:
    return Refusal(
        field="spec.storage.secretName",
        value="",
        reason="StoresSecretMalformed",
        message="The key mongoUri of the stores' Secret is no MongoDB URI.",
        remedy="Set it to mongodb://… or mongodb+srv://….",
    )
