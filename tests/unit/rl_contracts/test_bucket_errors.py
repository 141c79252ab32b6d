"""What error answers of a bucket become, by their codes."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minio.error import S3Error

from rl_contracts.errors import (
    AccessDeniedError,
    CommandRefusedError,
    ObjectMissingError,
    RLError,
    StoreUnavailableError,
)
from rl_contracts.stores.clients.bucket_errors import HANDLED_CODES, MISSING_CODES
from rl_contracts.stores.clients.remedies import S3_CODES, S3_FULL, S3_REFUSED
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.objects import Objects

SETTINGS = {
    "mongoUri": "mongodb://db",
    "mongoDatabase": "rl",
    "s3Endpoint": "http://127.0.0.1:9",
    "s3Bucket": "rl-data",
    "s3AccessKey": "a",
    "s3SecretKey": "b",
}
OBJECTS = Objects(StoreSettings.from_mapping(SETTINGS))
KNOWN = {*HANDLED_CODES, *MISSING_CODES, *S3_CODES, *S3_REFUSED}


def answer(code: str) -> type[RLError]:
    """Kind of the error that an answer with this code becomes."""

    def fail() -> None:
        raise S3Error(cast(Any, None), code, "The words.", "/a", "id", "host")

    with pytest.raises(RLError) as raised:
        OBJECTS.send(fail, "writing a", "a")
    return raised.type


@pytest.mark.parametrize("code", S3_REFUSED)
def test_a_request_that_can_never_succeed_is_refused(code: str) -> None:
    assert answer(code) is CommandRefusedError


@pytest.mark.parametrize("code", ["InternalError", "SlowDown", "ServerBusy", *S3_FULL])
def test_a_server_in_trouble_is_an_outage(code: str) -> None:
    assert answer(code) is StoreUnavailableError


@given(st.from_regex(r"[A-Z][A-Za-z]{2,30}", fullmatch=True).filter(lambda code: code not in KNOWN))
def test_an_unknown_error_is_an_outage(code: str) -> None:
    assert answer(code) is StoreUnavailableError


def test_missing_objects_and_credentials_have_errors_of_their_own() -> None:
    assert {answer(code) for code in MISSING_CODES} == {ObjectMissingError}
    assert {answer(code) for code in S3_CODES} == {AccessDeniedError}


@pytest.mark.parametrize(("scheme", "advised"), [("http", True), ("https", False)])
def test_a_connection_without_tls_that_is_reset_may_have_met_a_server_with_it(
    scheme: str, advised: bool
) -> None:
    endpoint = {"s3Endpoint": f"{scheme}://127.0.0.1:9"}
    objects = Objects(StoreSettings.from_mapping({**SETTINGS, **endpoint}))

    def fail() -> None:
        raise ConnectionResetError(104, "Connection reset by peer")

    with pytest.raises(StoreUnavailableError) as raised:
        objects.send(fail, "writing a", "a")
    assert ("Use https in s3Endpoint if the server uses TLS." in str(raised.value)) is advised
