"""A store that refuses in words of its own is told of, and keeps no job in silence."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pymongo.errors import OperationFailure

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import Objects
from rl_reader import input_checks, model_checks
from rl_reader.mounted import HIDDEN, Mounted
from rl_reader.reach import CHARACTERS, reach, shown
from tests.network.loopback import listening

WORDS = "Command createIndexes is not supported by this engine."
ERROR = f"<Error><Code>InvalidRequest</Code><Message>{WORDS}</Message></Error>".encode()


class Refusing(BaseHTTPRequestHandler):
    """An S3 server that takes no request as it is."""

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(ERROR)

    def do_HEAD(self) -> None:
        self.send_response(400)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(ERROR)))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def refuse() -> None:
    raise OperationFailure(WORDS, 115, {"codeName": "CommandNotSupported"})


def stores(endpoint: str, *, mongo: bool) -> Stores:
    values = {
        "mongoUri": "mongodb://db",
        "mongoDatabase": "rl_team",
        "s3Endpoint": endpoint,
        "s3Bucket": "abc",
        "s3AccessKey": "key",
        "s3SecretKey": "secret",
    }
    objects = Objects(StoreSettings.from_mapping(values), patience_seconds=0.0)
    asked = SimpleNamespace(ensure_indexes=refuse if mongo else lambda: None)
    return cast(Stores, SimpleNamespace(mongo=cast(Any, asked), objects=objects))


@pytest.mark.parametrize(
    ("mongo", "reason"), [(True, "StateStoreRefused"), (False, "BucketRefused")]
)
def test_the_stores_own_words_are_a_refusal(mongo: bool, reason: str) -> None:
    with listening(Refusing) as endpoint:
        (problem,) = input_checks._stores(stores(endpoint, mongo=mongo))
    assert problem.reason == reason
    assert problem.field == "spec.storage.secretName"
    assert (WORDS in problem.message) is mongo or "InvalidRequest" in problem.message


def test_a_folder_that_cannot_be_listed_is_one() -> None:
    with listening(Refusing) as endpoint:
        held = stores(endpoint, mongo=False)
        (problem,) = model_checks.folder(held, "uri", "s3://abc/model", ("config.json",))
    assert (problem.reason, problem.field, problem.value) == (
        "ModelRefused",
        "spec.model.uri",
        "s3://abc/model",
    )
    assert WORDS in problem.message


def test_a_running_job_says_so_in_its_conditions() -> None:
    reached = reach(refuse)
    assert (reached.status, reached.reason) == ("False", "Refused")
    assert WORDS in reached.cause


@pytest.mark.parametrize("before", [0, CHARACTERS - 40, CHARACTERS - 5, CHARACTERS])
def test_a_secret_is_hidden_before_a_message_is_cut(before: int) -> None:
    secret = "s3cr3tV4lue" * 4
    words = shown(
        "x" * before + secret + "y" * 2000, Mounted(version="1", hidden=(secret,)).without_secrets
    )
    assert secret[:5] not in words
    assert len(words) == CHARACTERS
    assert (HIDDEN[:1] in words) == (before < CHARACTERS)
