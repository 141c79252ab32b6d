"""What answers at ``s3Endpoint`` need not be an S3 server: MinIO's console says 200 to all."""

from __future__ import annotations

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

import pytest

from rl_contracts.errors import ObjectMissingError, StoreUnavailableError
from rl_contracts.stores.objects import Objects
from rl_contracts.stores.settings import StoreSettings
from tests.loopback import listening

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


def objects(endpoint: str) -> Objects:
    settings = StoreSettings.from_mapping(
        {
            "mongoUri": "mongodb://db", "mongoDatabase": "rl_team", "s3Endpoint": endpoint,
            "s3Bucket": "abc", "s3AccessKey": "key", "s3SecretKey": "secret",
        }
    )  # fmt: skip
    return Objects(settings, patience_seconds=0.0)


@pytest.mark.parametrize("status", [HTTPStatus.OK, HTTPStatus.NOT_FOUND, HTTPStatus.BAD_GATEWAY])
def test_a_page_in_place_of_a_list_says_what_to_do(status: HTTPStatus) -> None:
    told = pytest.raises(StoreUnavailableError, match="is no S3 server: mend host")
    with listening(answering(status)) as endpoint, told as error:
        objects(endpoint).list("models/")
    assert "of another tenant" not in str(error.value)


@pytest.mark.parametrize("name", ["192.168.0.1", "a..b", "a.-b"])
def test_a_bucket_that_none_can_be_is_not_there(name: str) -> None:
    """Whoever writes the server's address where the bucket belongs is told so."""
    bucket = objects("http://127.0.0.1:9").of_bucket(name)
    for ask in (bucket.check, lambda: bucket.list("m/"), lambda: bucket.stat("m/x")):
        with pytest.raises(ObjectMissingError, match=f"s3://{name} does not exist"):
            ask()
