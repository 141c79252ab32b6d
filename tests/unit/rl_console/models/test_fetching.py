"""How a model's files arrive."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from rl_console.actions.models.fetching import fetch
from rl_console.errors import RequestRefusedError, UsageError
from rl_contracts.handout import HandedFile

CONTENT = b"0123456789"
FILE = HandedFile(
    name="weights", size_bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest()
)


@contextmanager
def handing_out(content: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            first = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
            self.end_headers()
            self.wfile.write(content[first:])

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("before", [b"", b"0123", CONTENT, CONTENT + b"more"])
def test_a_file_is_continued_and_compared(tmp_path: Path, before: bytes) -> None:
    if before:
        (tmp_path / "weights.partial").write_bytes(before)
    with handing_out(CONTENT) as url:
        fetch(url, FILE, tmp_path, say=lambda text: None)
        fetch(url, FILE, tmp_path, say=lambda text: None)  # nothing more to do
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("weights", CONTENT)]


def test_a_file_of_another_content_is_never_kept(tmp_path: Path) -> None:
    with handing_out(b"012345678X") as url, pytest.raises(RequestRefusedError, match="digest"):
        fetch(url, FILE, tmp_path, say=lambda text: None)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_with_other_content_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"mine")
    with handing_out(CONTENT) as url, pytest.raises(UsageError, match="Choose another folder"):
        fetch(url, FILE, tmp_path, say=lambda text: None)
    assert (tmp_path / "weights").read_bytes() == b"mine"


def test_a_full_disk_ends_the_download(tmp_path: Path) -> None:
    (tmp_path / "weights.partial").symlink_to("/dev/full")
    with (
        handing_out(CONTENT) as url,
        pytest.raises(UsageError, match=r"weights\.partial cannot be written: No space left"),
    ):
        fetch(url, FILE, tmp_path, say=lambda text: None)
