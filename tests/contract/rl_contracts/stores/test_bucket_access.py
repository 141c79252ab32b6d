"""TLS, addressing and regions of the bucket, on a real MinIO."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rl_console.stores import objects_behind
from rl_contracts.errors import AccessDeniedError, RefusedError, StoreUnavailableError
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.objects import Objects
from tests.network.authority import Authority
from tests.servers import MinioServer, StoreServer, running_minio, settings_of

REGION = "eu-test-1"
DOMAIN = "s3.localhost"


@dataclass
class Secure:
    """A MinIO with TLS, virtual-host names below DOMAIN and a region of its own."""

    authority: Authority
    minio: MinioServer
    settings: StoreSettings

    def objects(self, *, patience_seconds: float = 20.0, **changes: str) -> Objects:
        values = self.settings.to_mapping() | changes
        return Objects(StoreSettings.from_mapping(values), patience_seconds=patience_seconds)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, store_server: StoreServer) -> Iterator[Secure]:
    folder, authority = tmp_path_factory.mktemp("secure-minio"), Authority()
    issued = authority.issue(DOMAIN, f"*.{DOMAIN}")
    issued.write(folder / "certs", certificate="public.crt", key="private.key")
    environment = {"MINIO_DOMAIN": DOMAIN, "MINIO_REGION": REGION}
    with running_minio(folder, certificates=folder / "certs", environment=environment) as minio:
        settings = settings_of(store_server, minio)
        values = settings.to_mapping() | {"s3Ca": authority.pem, "s3Region": REGION}
        secure = Secure(authority, minio, StoreSettings.from_mapping(values))
        secure.objects().make_bucket()
        yield secure


def by_name(monkeypatch: pytest.MonkeyPatch, secure: Secure) -> tuple[str, list[str]]:
    """The endpoint by name, below which all names are 127.0.0.1; and the names that are asked."""
    asked: list[str] = []
    resolve = socket.getaddrinfo

    def local(host: Any, *rest: Any, **named: Any) -> Any:
        if threading.current_thread() is threading.main_thread():  # others keep clients alive
            asked.append(str(host))
        inside = str(host).endswith("localhost")
        return resolve("127.0.0.1" if inside else host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", local)
    return secure.minio.endpoint.replace("127.0.0.1", DOMAIN), asked


@pytest.mark.parametrize(("style", "host"), [("path", DOMAIN), ("virtual", f"rl-data.{DOMAIN}")])
def test_objects_are_written_and_read_over_tls(
    monkeypatch: pytest.MonkeyPatch, secure: Secure, tmp_path: Path, style: str, host: str
) -> None:
    endpoint, asked = by_name(monkeypatch, secure)
    objects = secure.objects(s3Endpoint=endpoint, s3AddressingStyle=style)
    objects.check()
    key = f"{objects.prefix}runs/a/x"
    objects.put(key, b"kept")
    assert objects.get(key) == b"kept"
    objects.get_file(key, tmp_path / "x")
    assert [stored_object.key for stored_object in objects.list(objects.prefix)] == [key]
    assert objects.delete_prefix(f"{objects.prefix}runs/a/") == 1
    assert set(asked) == {host}


@pytest.mark.parametrize(
    ("changes", "error", "remedy"),
    [
        ({"s3Ca": ""}, StoreUnavailableError, "into s3Ca of the stores' Secret"),
        ({"s3Region": "us-west-2"}, AccessDeniedError, "Set s3Region"),
        ({"s3SecretKey": "wrong-key"}, AccessDeniedError, "Correct s3AccessKey and s3SecretKey"),
        ({"s3AccessKey": "nobody"}, AccessDeniedError, "Correct s3AccessKey and s3SecretKey"),
    ],
)
def test_rejected_credentials_name_the_remedy(
    secure: Secure, changes: dict[str, str], error: type[Exception], remedy: str
) -> None:
    with pytest.raises(error, match=remedy) as failed:
        secure.objects(patience_seconds=1, **changes).put("x", b"1")
    assert "wrong-key" not in str(failed.value)


def test_http_to_a_server_that_speaks_tls_says_so(secure: Secure) -> None:
    plain = secure.minio.endpoint.replace("https:", "http:")
    with pytest.raises(StoreUnavailableError, match="Use https in s3Endpoint"):
        secure.objects(patience_seconds=1, s3Endpoint=plain, s3Ca="").put("x", b"1")


def test_tls_to_a_server_without_it_says_so(
    minio_server: MinioServer, store_server: StoreServer
) -> None:
    values = settings_of(store_server, minio_server).to_mapping()
    values["s3Endpoint"] = values["s3Endpoint"].replace("http:", "https:")
    objects = Objects(StoreSettings.from_mapping(values), patience_seconds=1)
    with pytest.raises(StoreUnavailableError, match="does not use TLS"):
        objects.put("x", b"1")


def test_a_port_forward_is_checked_against_the_real_host_name(secure: Secure) -> None:
    tunnel = secure.minio.endpoint  # 127.0.0.1
    for host, agrees in ((DOMAIN, True), ("other.localhost", False)):
        values = secure.settings.to_mapping()
        values |= {"s3Endpoint": f"https://{host}:9000", "s3AddressingStyle": "virtual"}
        objects = objects_behind(StoreSettings.from_mapping(values), tunnel)
        objects._patience = 1
        if agrees:
            objects.put("x", b"1")
            continue
        with pytest.raises(StoreUnavailableError, match="Use a name in s3Endpoint"):
            objects.put("x", b"1")


def test_an_expired_certificate_is_refused(secure: Secure, tmp_path: Path) -> None:
    issued = secure.authority.issue(expired=True)
    issued.write(tmp_path / "certs", certificate="public.crt", key="private.key")
    with running_minio(tmp_path, certificates=tmp_path / "certs") as minio:
        objects = secure.objects(patience_seconds=1, s3Endpoint=minio.endpoint)
        with pytest.raises(StoreUnavailableError, match="Renew the server's certificate"):
            objects.put("x", b"1")


def test_a_host_name_missing_in_the_certificate_is_refused(
    monkeypatch: pytest.MonkeyPatch, secure: Secure
) -> None:
    endpoint, _ = by_name(monkeypatch, secure)
    other = endpoint.replace(DOMAIN, "other.localhost")
    objects = secure.objects(patience_seconds=1, s3Endpoint=other)
    with pytest.raises(StoreUnavailableError, match="Use a name in s3Endpoint"):
        objects.put("x", b"1")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"s3Ca": "no certificate"}, "s3Ca: is not a certificate"),
        ({"s3Endpoint": "http://x:1"}, "s3Endpoint is not https"),
        ({"s3AddressingStyle": "dns"}, "s3AddressingStyle"),
        ({"s3Region": "a b"}, "s3Region"),
        ({"mongoCa": "MII"}, "mongoCa: is not a certificate"),
        ({"mongoClientCertificate": "-----BEGIN CERTIFICATE-----"}, "its private key"),
    ],
)
def test_contradicting_settings_are_refused(
    secure: Secure, changes: dict[str, str], words: str
) -> None:
    with pytest.raises(RefusedError, match=words):
        StoreSettings.from_mapping(secure.settings.to_mapping() | changes)
