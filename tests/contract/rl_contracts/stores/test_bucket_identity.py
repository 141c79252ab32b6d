"""A bucket without keys in the Secret: a pod's identity is exchanged for temporary credentials.

The credentials are real ones of MinIO, by its AssumeRole; the STS in between is the test's.
"""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from minio.credentials.providers import AssumeRoleProvider

from rl_contracts.errors import AccessDeniedError, RefusedError, StoreUnavailableError
from rl_contracts.stores.clients.multipart import PART_BYTES
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.objects import Objects
from tests.servers import MinioServer

ROLE = "arn:aws:iam::1:role/rl"
ANSWER = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{access}</AccessKeyId>
<SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""


@dataclass
class Cloud:
    """Answers as STS, as EKS Pod Identity's agent, and as an instance's metadata service."""

    minio: MinioServer
    url: str = ""
    asked: list[str] = field(default_factory=list)
    busy: list[tuple[int, str]] = field(default_factory=list)
    """The next answers, in place of credentials."""
    policy: str | None = None
    """Of the credentials; None: all that MinIO's user may do."""
    spoiled: int = 0
    """So many of the next credentials have a token that the bucket rejects."""

    def credentials(self) -> dict[str, str]:
        """Temporary ones of MinIO."""
        made = AssumeRoleProvider(
            sts_endpoint=self.minio.endpoint,
            access_key=self.minio.access_key,
            secret_key=self.minio.secret_key,
            policy=self.policy,
        ).retrieve()
        assert made.session_token
        spoiled, self.spoiled = self.spoiled > 0, max(0, self.spoiled - 1)
        return {
            "access": made.access_key,
            "secret": made.secret_key,
            "token": made.session_token + "x" * spoiled,
        }

    def web_identity(self, asked: dict[str, list[str]]) -> tuple[int, str]:
        self.asked.append(asked["WebIdentityToken"][0])
        if asked["WebIdentityToken"] != ["of-the-pod"] or asked["RoleArn"] != [ROLE]:
            return 403, "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"
        return 200, ANSWER.format(**self.credentials())

    def document(self) -> str:
        made = self.credentials()
        return json.dumps(
            {
                "Code": "Success",
                "AccessKeyId": made["access"],
                "SecretAccessKey": made["secret"],
                "Token": made["token"],
                "Expiration": "2099-01-01T00:00:00Z",
            }
        )


@contextmanager
def serving(cloud: Cloud) -> Iterator[Cloud]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def answer(self, status: int, text: str) -> None:
            status, text = cloud.busy.pop(0) if cloud.busy else (status, text)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            query = urlsplit(self.path).query or self.rfile.read(length).decode()
            self.answer(*cloud.web_identity(parse_qs(query)))

        def do_PUT(self) -> None:
            self.answer(200, "metadata-token")

        def do_GET(self) -> None:
            cloud.asked.append(self.path)
            if self.path == "/pod-identity":
                known = self.headers["Authorization"] == "of-the-pod"
                self.answer(200 if known else 403, cloud.document() if known else "{}")
            elif self.path.endswith("/security-credentials/"):
                self.answer(200, "node-role")
            else:
                self.answer(200, cloud.document())

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cloud.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield cloud
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


@pytest.fixture
def cloud(minio_server: MinioServer, store_settings: StoreSettings) -> Iterator[Cloud]:
    Objects(store_settings).make_bucket()
    with serving(Cloud(minio_server)) as started:
        yield started


def keyless(settings: StoreSettings, **changes: str) -> StoreSettings:
    values: dict[str, Any] = settings.to_mapping() | {"mongoUri": "mongodb://rl:word@h/", **changes}
    return StoreSettings.from_mapping(
        {
            name: value
            for name, value in values.items()
            if not name.endswith(("AccessKey", "SecretKey"))
        }
    )


def write_and_read(settings: StoreSettings) -> None:
    objects = Objects(settings, patience_seconds=5.0)
    key = f"{objects.prefix}identity"
    objects.put(key, b"small")
    assert objects.get(key) == b"small"
    whole = memoryview(bytes(PART_BYTES + 7))  # two parts, signed by our own requests
    with ThreadPoolExecutor(2) as executor:
        objects.put_parts(
            key,
            lambda offset, size: [whole[offset : offset + size]],
            size_bytes=len(whole),
            executor=executor,
        )
    assert objects.stat(key).size_bytes == len(whole)


def test_a_web_identity_token_is_exchanged_for_credentials(
    cloud: Cloud, store_settings: StoreSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("of-the-pod")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", cloud.url)
    write_and_read(keyless(store_settings))
    assert cloud.asked == ["of-the-pod"], "credentials are kept until they expire"
    (tmp_path / "token").write_text("of-somebody")
    with pytest.raises(AccessDeniedError, match="no credentials for the pod's identity") as denied:
        write_and_read(keyless(store_settings))
    assert "service account" in denied.value.remedy
    shown = "".join(traceback.format_exception(denied.value))
    assert f"{cloud.url} answered with status 403 AccessDenied" in shown
    assert "of-somebody" not in shown, "the pod's token is a secret"


def test_a_pods_identity_of_eks_and_an_instances_profile_are_exchanged(
    cloud: Cloud, store_settings: StoreSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", cloud.url)
    write_and_read(keyless(store_settings))
    assert cloud.asked[-1].endswith("/security-credentials/node-role")
    (tmp_path / "token").write_text("of-the-pod")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{cloud.url}/pod-identity")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    write_and_read(keyless(store_settings))
    assert cloud.asked[-1] == "/pod-identity"


def as_eks_pod(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{cloud.url}/pod-identity")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "of-the-pod")


def as_irsa_pod(cloud: Cloud, monkeypatch: pytest.MonkeyPatch, token: Path) -> None:
    token.write_text("of-the-pod")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", cloud.url)


@pytest.mark.parametrize("irsa", [True, False])
@pytest.mark.parametrize(
    ("status", "body"), [(429, ""), (503, ""), (400, "<Error><Code>Throttling</Code></Error>")]
)
def test_a_server_that_can_give_no_credentials_now_is_waited_for(
    cloud: Cloud,
    store_settings: StoreSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: str,
    irsa: bool,
) -> None:
    if irsa:
        as_irsa_pod(cloud, monkeypatch, tmp_path / "token")
    else:
        as_eks_pod(cloud, monkeypatch)
    objects = Objects(keyless(store_settings), patience_seconds=5.0)
    cloud.busy = [(status, body)] * 2
    objects.put(f"{objects.prefix}identity", b"small")
    impatient = Objects(keyless(store_settings), patience_seconds=0.0)
    cloud.busy = [(status, body)]
    with pytest.raises(StoreUnavailableError, match=f"answered with status {status}") as raised:
        impatient.put(f"{objects.prefix}identity", b"small")
    assert "of-the-pod" not in str(raised.value)


def test_credentials_that_the_bucket_rejects_are_replaced_once(
    cloud: Cloud, store_settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_eks_pod(cloud, monkeypatch)
    cloud.spoiled = 1
    write_and_read(keyless(store_settings))
    assert cloud.asked == ["/pod-identity"] * 2
    cloud.spoiled = 2
    with pytest.raises(AccessDeniedError) as denied:
        write_and_read(keyless(store_settings))
    assert cloud.asked == ["/pod-identity"] * 4
    assert "role of the pod's service account" in denied.value.remedy
    assert "s3AccessKey" not in str(denied.value), "the Secret has no such key"


def test_rejected_credentials_of_variables_have_no_others(
    cloud: Cloud, store_settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.spoiled = 1
    given = cloud.credentials()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", given["access"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", given["secret"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", given["token"])
    with pytest.raises(AccessDeniedError, match="InvalidTokenId"):
        write_and_read(keyless(store_settings))


READ_AND_WRITE = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Action": ["s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:GetBucketLocation"],
            "Resource": ["arn:aws:s3:::*"],
        }
    ],
}


def test_a_role_that_may_not_delete_is_told_so_and_is_no_outage(
    cloud: Cloud, store_settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_eks_pod(cloud, monkeypatch)
    cloud.policy = json.dumps(READ_AND_WRITE)
    objects = Objects(keyless(store_settings), patience_seconds=5.0)
    folder = f"{objects.prefix}kept/"
    objects.put(f"{folder}a", b"1")
    for delete in (objects.delete_prefix, objects.delete_page):
        with pytest.raises(AccessDeniedError, match="AccessDenied") as denied:
            delete(folder)
        assert "list and delete in the bucket" in denied.value.remedy
    assert len(objects.list(folder)) == 1


def test_keys_come_both_or_not_at_all(store_settings: StoreSettings) -> None:
    values = store_settings.to_mapping()
    for missing in ("s3AccessKey", "s3SecretKey"):
        with pytest.raises(RefusedError, match="must both be set, or none"):
            StoreSettings.from_mapping({k: v for k, v in values.items() if k != missing})
    with pytest.raises(RefusedError, match="mongoUri must have a password"):
        keyless(store_settings, mongoUri="mongodb://h/")


def test_pods_without_keys_derive_their_tokens_from_the_rest_of_the_secret(
    store_settings: StoreSettings,
) -> None:
    settings, same = keyless(store_settings), keyless(store_settings)
    other = keyless(store_settings, mongoUri="mongodb://rl:another@h/")
    assert settings.shared_token("relay") == same.shared_token("relay")
    assert settings.shared_token("relay") != other.shared_token("relay")
    assert "s3SecretKey" not in settings.to_mapping()
