"""What error answers of the document store become, by their codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo.errors import BulkWriteError, DocumentTooLarge, DuplicateKeyError, OperationFailure

from rl_contracts.errors import AccessDeniedError, CommandRefusedError, StoreUnavailableError
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.clients.mongo_errors import ACCESS_CODES, DUPLICATE_KEY, REFUSED_CODES
from rl_contracts.stores.clients.settings import StoreSettings
from tests.servers import deaf_port

SETTINGS = StoreSettings.from_mapping(
    {
        "mongoUri": f"mongodb://127.0.0.1:{deaf_port()}/",
        "mongoDatabase": "rl",
        "s3Endpoint": "http://127.0.0.1:9",
        "s3Bucket": "rl-data",
        "s3AccessKey": "a",
        "s3SecretKey": "b",
    }
)
FINAL = ACCESS_CODES | REFUSED_CODES.keys() | {DUPLICATE_KEY}
TRANSIENT = {
    "InterruptedAtShutdown": 11600,
    "QueryPlanKilled": 175,
    "TemporarilyUnavailable": 365,
    "TooManyFilesOpen": 264,
    "IngressRequestRateLimitExceeded": 462,
    "WriteConcernTimeout": 64,
    "OutOfDiskSpace": 14031,
}


@pytest.fixture(scope="module")
def mongo() -> Iterator[Mongo]:
    with closing(Mongo(SETTINGS, patience_seconds=30.0)) as mongo:
        yield mongo


def failing_once(error: Exception) -> Callable[[], str]:
    answers: Iterator[Exception | str] = iter([error, "done"])

    def answer() -> str:
        result = next(answers)
        if isinstance(result, Exception):
            raise result
        return result

    return answer


def bulk(*codes: int, concern: int | None = None) -> BulkWriteError:
    details: dict[str, Any] = {
        "writeErrors": [{"code": code, "errmsg": "e", "index": 0} for code in codes],
        "writeConcernErrors": [{"code": concern, "errmsg": "late"}] if concern else [],
    }
    return BulkWriteError(details)


@pytest.mark.parametrize("code", TRANSIENT.values(), ids=TRANSIENT)
def test_a_transient_error_is_repeated(mongo: Mongo, code: int) -> None:
    assert mongo.call("asking", failing_once(OperationFailure("busy", code))) == "done"


@given(st.integers(1, 20_000).filter(lambda code: code not in FINAL), st.booleans())
def test_any_unknown_error_is_repeated(code: int, in_bulk: bool) -> None:
    error = bulk(code, DUPLICATE_KEY) if in_bulk else OperationFailure("busy", code)
    with (
        closing(Mongo(SETTINGS, patience_seconds=0.0)) as mongo,
        pytest.raises(StoreUnavailableError, match=r"while asking: (busy|e)"),
    ):
        mongo.call("asking", failing_once(error))


def test_a_document_that_is_too_large_is_no_fault_of_the_server(mongo: Mongo) -> None:
    message = "object to insert too large. size in bytes: 16777400, max size: 16777216"
    failures = [{"code": 2, "errmsg": message, "index": 1}]
    for error in (
        OperationFailure(message, 2),
        BulkWriteError({"writeErrors": failures, "writeConcernErrors": []}),
    ):
        with pytest.raises(CommandRefusedError, match="shorten the longest records") as refused:
            mongo.call("inserting 64 tasks", failing_once(error))
        assert "MongoDB 6" not in str(refused.value)


@pytest.mark.parametrize("code", REFUSED_CODES)
def test_a_command_that_can_never_succeed_is_refused_at_once(mongo: Mongo, code: int) -> None:
    for error in (OperationFailure("no", code), bulk(code), bulk(DUPLICATE_KEY, code)):
        with pytest.raises(CommandRefusedError, match=rf"while asking: .*code {code}") as refused:
            mongo.call("asking", failing_once(error))
        assert refused.value.remedy in str(refused.value)


def test_a_document_that_the_driver_cannot_send_is_refused(mongo: Mongo) -> None:
    with pytest.raises(CommandRefusedError, match=r"while writing: too large\. Lower"):
        mongo.call("writing", failing_once(DocumentTooLarge("too large")))


@pytest.mark.parametrize("code", sorted(ACCESS_CODES))
def test_denied_access_is_not_repeated(mongo: Mongo, code: int) -> None:
    with pytest.raises(AccessDeniedError, match="while asking"):
        mongo.call("asking", failing_once(OperationFailure("denied", code)))


def test_duplicates_are_left_to_the_caller(mongo: Mongo) -> None:
    for error in (DuplicateKeyError("there", DUPLICATE_KEY), bulk(DUPLICATE_KEY)):
        with pytest.raises(type(error)):
            mongo.call("asking", failing_once(error))
    late = bulk(DUPLICATE_KEY, concern=64)
    assert mongo.call("asking", failing_once(late)) == "done"
