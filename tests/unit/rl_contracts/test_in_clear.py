"""A store outside of the cluster that is reached without TLS is warned about, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.reader import IN_CLEAR
from rl_contracts.stores.clients import in_clear
from rl_contracts.stores.clients.settings import StoreSettings
from rl_reader.reach import reached


def settings(uri: str = "mongodb://store/", endpoint: str = "http://minio") -> StoreSettings:
    values: dict[str, Any] = {
        "mongoUri": uri,
        "mongoDatabase": "rl_team",
        "s3Endpoint": endpoint,
        "s3Bucket": "abc",
        "s3AccessKey": "key",
        "s3SecretKey": "secret",
    }
    return StoreSettings.from_mapping(values)


OUTSIDE = [
    "mongodb://user:secret@db.example.org/",
    "mongodb://user:secret@db.example.org/?tls=false",
    "mongodb://user:secret@store.rl.svc,db.example.org:27018/?replicaSet=r",
    "mongodb://8.8.8.8/",
    "mongodb+srv://user:secret@db.example.org/?tls=false",
]
INSIDE = [
    "mongodb://store:27017/",
    "mongodb://user:secret@store.rl.svc.cluster.local/",
    "mongodb://10.1.2.3,192.168.0.1/",
    "mongodb://127.0.0.1/",
    "mongodb://[fd00::1]/",
]
ENCRYPTED = [
    "mongodb://user:secret@db.example.org/?tls=true",
    "mongodb://user:secret@db.example.org/?ssl=true",
    "mongodb://user:secret@db.example.org/?retryWrites=true&TLS=true",
    "mongodb+srv://user:secret@db.example.org/",
]


@pytest.mark.parametrize("uri", OUTSIDE)
def test_a_state_store_outside_without_tls_is_warned_about(uri: str) -> None:
    warned = in_clear.state_store(settings(uri))
    assert warned is not None
    assert (warned.reason, "secret" in warned.message) == (IN_CLEAR, False)
    assert "mongoUri" in warned.message
    assert "tls=true" in warned.message


@pytest.mark.parametrize("uri", [*INSIDE, *ENCRYPTED])
def test_a_state_store_inside_or_with_tls_is_not(uri: str) -> None:
    assert in_clear.state_store(settings(uri)) is None


@pytest.mark.parametrize(
    ("endpoint", "warned"),
    [
        ("http://s3.example.org", True),
        ("http://8.8.8.8:9000", True),
        ("https://s3.example.org", False),
        ("http://minio.rl.svc:9000", False),
        ("http://10.0.0.7:9000", False),
        ("http://localhost:9000", False),
    ],
)
def test_a_bucket_outside_without_tls_is_warned_about(endpoint: str, *, warned: bool) -> None:
    warning = in_clear.bucket(settings(endpoint=endpoint))
    assert (warning is not None) == warned
    assert warning is None or endpoint.partition("://")[2].partition(":")[0] in warning.message


def test_a_store_that_answers_says_all_warnings_under_the_first_reason() -> None:
    warned = in_clear.bucket(settings(endpoint="http://s3.example.org"))
    other = in_clear.state_store(settings("mongodb://8.8.8.8/"))
    state = reached(None, warned, other)
    assert warned is not None
    assert other is not None
    assert (state.status, state.reason) == ("True", IN_CLEAR)
    assert state.cause == f"{warned.message} {other.message}"
    assert reached(None).reason == "Reachable"
