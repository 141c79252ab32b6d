from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rl_contracts.images import web
from rl_contracts.images.decoder import BadImageError
from tests.network.authority import Authority


@contextlib.contextmanager
def serving(authority: Authority, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """An HTTPS server with 5 bytes at /a.png; its address, and the Host of each request."""
    hosts: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hosts.append(self.headers["Host"])
            self.send_response(200 if self.path == "/a.png" else 404)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"image")

        def log_message(self, *args: object) -> None:
            del args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = authority.context(folder).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"localhost:{server.server_port}", hosts
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "169.254.169.254",
        "10.1.2.3",
        "100.64.1.2",
        "0.0.0.0",
        "::1",
        "fd00::1",
        "fe80::1%eth0",
        "::ffff:100.64.1.2",
    ],
)
def test_addresses_within_the_cluster_are_not_asked(address: str) -> None:
    assert not web.is_outside(address)


def test_a_name_that_leads_into_the_cluster_is_refused_before_it_is_asked() -> None:
    with pytest.raises(BadImageError, match="within the cluster: put the image into the bucket"):
        web.fetch("https://localhost:1/a.png", most=1000)


def test_a_host_outside_is_asked() -> None:
    assert web.is_outside("93.184.216.34")


def test_an_image_is_fetched_over_tls_within_its_limits(tmp_path: Path) -> None:
    authority, trusted = Authority(), tmp_path / "authority.pem"
    trusted.write_text(authority.pem)

    def fetch(url: str, most: int = 5) -> bytes:
        return web.fetch(url, most=most, allowed=lambda host: True, authorities=str(trusted))

    with serving(authority, tmp_path) as (address, hosts):
        assert fetch(f"https://user:word@{address}/a.png") == b"image"
        assert hosts == [address]
        with pytest.raises(BadImageError, match=r"more than spec\.data\.images\.maxBytes = 4"):
            fetch(f"https://{address}/a.png", most=4)
        with pytest.raises(BadImageError, match="answers 404"):
            fetch(f"https://{address}/b.png")


def test_an_answer_that_takes_too_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "WHOLE_SECONDS", -1.0)
    authority, trusted = Authority(), tmp_path / "authority.pem"
    trusted.write_text(authority.pem)
    with (
        serving(authority, tmp_path) as (address, _),
        pytest.raises(BadImageError, match="took more than"),
    ):
        web.fetch(
            f"https://{address}/a.png",
            most=5,
            allowed=lambda host: True,
            authorities=str(trusted),
        )


@pytest.mark.parametrize(
    "url", ["https://a.b:99999/a", "https://[::1", "https://a..b/", f"https://{'a' * 70}.de/"]
)
def test_an_address_that_none_can_have_is_a_bad_image(url: str) -> None:
    with pytest.raises(BadImageError, match="cannot be fetched"):
        web.fetch(url, most=1000, allowed=lambda host: True)
