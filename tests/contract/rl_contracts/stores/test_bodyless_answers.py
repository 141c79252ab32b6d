"""A bucket that answers HEAD requests as AWS does: with a status and no body."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rl_contracts.errors import AccessDeniedError, CommandRefusedError
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.objects import Objects

LISTING = (
    "<ListBucketResult><Name>rl-data</Name><IsTruncated>false</IsTruncated></ListBucketResult>"
)


class Bucket(ThreadingHTTPServer):
    """Refuses every HEAD with status 400; ``code`` is what other requests are refused by."""

    code = ""
    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    server: Bucket

    def log_message(self, *_: object) -> None: ...

    def answer(self, status: int, body: bytes) -> None:
        self.server.asked.append(self.command)
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.answer(400, b"")

    def do_GET(self) -> None:
        if code := self.server.code:
            self.answer(400, f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode())
        else:
            self.answer(200, LISTING.encode())


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with Bucket(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def objects(bucket: Bucket) -> Objects:
    values = {
        "mongoUri": "mongodb://db",
        "mongoDatabase": "rl",
        "s3Endpoint": f"http://127.0.0.1:{bucket.server_port}",
        "s3Bucket": "rl-data",
        "s3AccessKey": "a",
        "s3SecretKey": "b",
    }
    return Objects(StoreSettings.from_mapping(values), patience_seconds=5.0)


REQUESTS: list[Callable[[Objects], object]] = [
    lambda objects: objects.check(),
    lambda objects: objects.stat("a"),
]


@pytest.mark.parametrize("request_of", REQUESTS, ids=["bucket", "object"])
@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("AuthorizationHeaderMalformed", "Set s3Region to the region of the bucket."),
        ("ExpiredToken", "Correct s3AccessKey and s3SecretKey."),
    ],
)
def test_the_reason_of_a_refused_head_request_is_asked_for(
    bucket: Bucket,
    objects: Objects,
    request_of: Callable[[Objects], object],
    code: str,
    remedy: str,
) -> None:
    bucket.code = code
    with pytest.raises(AccessDeniedError) as denied:
        request_of(objects)
    assert (denied.value.cause, denied.value.remedy) == (code, remedy)
    assert bucket.asked == ["HEAD", "GET"]


def test_a_refused_head_request_without_a_reason_stays_refused(
    bucket: Bucket, objects: Objects
) -> None:
    with pytest.raises(CommandRefusedError, match="BadRequest"):
        objects.stat("a")
    assert bucket.asked == ["HEAD", "GET"]
