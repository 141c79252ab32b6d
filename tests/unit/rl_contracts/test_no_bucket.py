"""What answers at ``s3Endpoint`` need not be an S3 server: MinIO's console says 200 to all."""

from __future__ import annotations

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

import pytest

from rl_contracts.errors import ObjectMissingError, RefusedError, StoreUnavailableError
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.objects import Objects
from tests.network.loopback import listening
from tests.waiting import HUNG_SECONDS

PAGE = b"<!doctype html><html><br><p>of another tenant</html>"


def answering(status: HTTPStatus) -> type[BaseHTTPRequestHandler]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_: object) -> None:
            pass

    return Page


def objects(
    endpoint: str, *, patience_seconds: float = 0.0, changes: dict[str, str] | None = None
) -> Objects:
    values = {
        "mongoUri": "mongodb://db",
        "mongoDatabase": "rl_team",
        "s3Endpoint": endpoint,
        "s3Bucket": "abc",
        "s3AccessKey": "key",
        "s3SecretKey": "secret",
    }
    settings = StoreSettings.from_mapping(values | (changes or {}))
    return Objects(settings, patience_seconds=patience_seconds)


@pytest.mark.parametrize("status", [HTTPStatus.OK, HTTPStatus.NOT_FOUND, HTTPStatus.BAD_GATEWAY])
def test_an_html_page_instead_of_a_listing_names_the_remedy(status: HTTPStatus) -> None:
    raised = pytest.raises(StoreUnavailableError, match="that answers is not S3: correct host")
    with listening(answering(status)) as endpoint, raised as error:
        objects(endpoint).list("models/")
    assert "of another tenant" not in str(error.value)


def test_retries_open_a_new_connection_after_a_non_s3_answer() -> None:
    """Whoever answers behind one address is told by the connection, which is kept."""
    reached: list[object] = []

    class OneOfTwo(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(HTTPStatus.NOT_FOUND if self.first else HTTPStatus.OK)

        def do_PUT(self) -> None:
            self.answer(HTTPStatus.NOT_FOUND)

        def setup(self) -> None:
            super().setup()
            self.first = not reached
            reached.append(self.client_address)

        def answer(self, status: HTTPStatus) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with listening(OneOfTwo) as endpoint:
        objects(endpoint, patience_seconds=HUNG_SECONDS).make_bucket()
    assert len(reached) == 2


@pytest.mark.parametrize("name", ["192.168.0.1", "a..b", "a.-b"])
def test_an_impossible_bucket_name_counts_as_missing(name: str) -> None:
    """Whoever writes the server's address where the bucket belongs is told so."""
    bucket = objects("http://127.0.0.1:9").of_bucket(name)
    for ask in (bucket.check, lambda: bucket.list("m/"), lambda: bucket.stat("m/x")):
        with pytest.raises(ObjectMissingError, match=f"s3://{name} does not exist"):
            ask()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("s3Endpoint", "http://s3:99999"),
        ("s3Endpoint", "http://s3:http"),
        ("s3Endpoint", "http://[::1"),
        ("s3Endpoint", "http://key:s3cret@s3"),
        ("s3Endpoint", "https://data.s3-accelerate.amazonaws.com"),
        ("s3AccessKey", ""),
        ("s3AccessKey", "key\nX-Other: header"),
        ("s3SecretKey", ""),
        ("s3SecretKey", "s3cret\x00"),
    ],
)
def test_unusable_bucket_settings_are_refused_with_their_key(key: str, value: str) -> None:
    with pytest.raises(RefusedError, match=f"malformed keys: {key}: ") as refused:
        objects("http://s3", changes={key: value})
    assert "s3cret" not in str(refused.value)
