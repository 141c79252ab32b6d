"""A small server with the Hugging Face hub's addresses for reading, for the real client."""

from __future__ import annotations

import hashlib
import json
import re
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from tests.network.loopback import listening

REPO = "org/tiny"
Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""
Kind = Literal["models", "datasets"]
_REPO = r"(?P<repo>[^/]+/[^/]+)"
DESCRIBED = re.compile(rf"/api/(?P<kind>\w+)/{_REPO}/revision/(?P<revision>[^?]+)(\?.*)?")
LISTED = re.compile(rf"/api/(?P<kind>\w+)/{_REPO}/tree/(?P<revision>[^?]+)(\?.*)?")
RESOLVED = re.compile(
    rf"/((?P<kind>datasets)/)?{_REPO}/resolve/(?P<revision>[^/]+)/(?P<name>[^?]+)"
)


def commit(word: str) -> str:
    """A name as git gives them."""
    return hashlib.sha1(word.encode(), usedforsecurity=False).hexdigest()


@dataclass
class FakeHub:
    """A model or data set, whose commits hold files by name; weights lie in large file storage."""

    commits: dict[str, Mapping[str, bytes]]
    branches: dict[str, str]
    """Commits by branch or tag."""
    kind: Kind = "models"
    token: str = ""
    """When set, nothing is shown without it."""
    trusts: dict[str, str] = field(default_factory=dict)
    """Identities of pods, by the account or repository that trusts them; ``token`` is for these."""
    gated: bool = False
    """It is described to everybody, its files are for nobody."""
    failures: int = 0
    """So many requests are answered by 503 first."""
    cuts: int = 0
    """So many answers with a file break off in their middle."""
    damaged: frozenset[str] = frozenset()
    """Files that come with other bytes than they are described by."""
    url: str = ""
    exchanged: int = 0
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and Authorization header."""

    def read(self, name: str) -> int:
        """How often a file's content was asked for."""
        return sum(m == "GET" and path.endswith(f"/{name}") for m, path, _ in self.requests)

    @property
    def described(self) -> Counter[str]:
        """How often each revision was asked for."""
        asked = (DESCRIBED.fullmatch(path) for _, path, _ in self.requests)
        return Counter(unquote(match["revision"]) for match in asked if match is not None)

    def answer(self, method: str, path: str, authorization: str) -> Answer:
        self.requests.append((method, path, authorization))
        if self.failures > 0:
            self.failures -= 1
            return 503, {}, b""
        if self.token and authorization != f"Bearer {self.token}":
            return 401, {"X-Error-Code": "RepoNotFound"}, b"{}"
        described, listed = DESCRIBED.fullmatch(path), LISTED.fullmatch(path)
        resolved = RESOLVED.fullmatch(path)
        if described is not None and self._is_here(described):
            return self._describe(unquote(described["revision"]))
        if listed is not None and self._is_here(listed):
            return self._list(listed["revision"])
        if resolved is not None and self._is_here(resolved):
            return self._file(resolved["revision"], unquote(resolved["name"]))
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"

    def exchange(self, asked: dict[str, str]) -> Answer:
        """A token for an identity (RFC 8693)."""
        grant = (asked.get("grant_type", ""), asked.get("subject_token_type", ""))
        assert grant == (
            "urn:ietf:params:oauth:grant-type:token-exchange",
            "urn:ietf:params:oauth:token-type:id_token",
        )
        self.exchanged += 1
        if self.trusts.get(asked["resource"]) != asked["subject_token"]:
            error = f"invalid_grant: no publisher for {asked['subject_token']}"
            return 400, {}, json.dumps({"error": error}).encode()
        return 200, {}, json.dumps({"access_token": self.token, "expires_in": 3600}).encode()

    def _is_here(self, asked: re.Match[str]) -> bool:
        return asked["repo"] == REPO and (asked["kind"] or "models") == self.kind

    def _describe(self, revision: str) -> Answer:
        commit = self.branches.get(revision, revision)
        if commit not in self.commits:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        siblings = [_sibling(name, data) for name, data in self.commits[commit].items()]
        body = {"id": REPO, "sha": commit, "private": False, "tags": [], "siblings": siblings}
        return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()

    def _list(self, commit: str) -> Answer:
        siblings = [_sibling(name, data) for name, data in self.commits[commit].items()]
        tree = [
            {
                "type": "file",
                "path": sibling["rfilename"],
                "size": sibling["size"],
                "oid": sibling["blobId"],
            }
            for sibling in siblings
        ]
        return 200, {"Content-Type": "application/json"}, json.dumps(tree).encode()

    def _file(self, revision: str, name: str) -> Answer:
        if self.gated:
            return 403, {"X-Error-Code": "GatedRepo"}, b""
        data = self.commits.get(revision, {}).get(name)
        if data is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        etag = f'"{_sha256(data) if _is_large(name) else _blob(data)}"'
        if name in self.damaged:
            data = data[:-1] + bytes([data[-1] ^ 1])
        return 200, {"X-Repo-Commit": revision, "ETag": etag, "Accept-Ranges": "bytes"}, data


def _is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".bin"))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _sibling(name: str, data: bytes) -> dict[str, object]:
    pointer = b"version https://git-lfs.github.com/spec/v1\n"
    large = {"sha256": _sha256(data), "size": len(data), "pointerSize": len(pointer)}
    content = pointer if _is_large(name) else data
    described = {"rfilename": name, "size": len(data), "blobId": _blob(content)}
    return described | ({"lfs": large} if _is_large(name) else {})


def files_in(folder: Path) -> dict[str, bytes]:
    """Files of a folder as a commit has them."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@contextmanager
def serving(
    hub: FakeHub, *, host: str = "127.0.0.1", context: ssl.SSLContext | None = None
) -> Iterator[FakeHub]:
    """Serve it on an address of this machine, by TLS with a context."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = hub.answer(
                self.command, self.path, self.headers.get("Authorization", "")
            )
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if status == 200 and wanted is not None:
                start = int(wanted[1])
                headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
                status, body = 206, body[start:]
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            if hub.cuts > 0 and "ETag" in headers and len(body) > 1:
                hub.cuts -= 1
                body, self.close_connection = body[: len(body) // 2], True
            self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            assert self.path == "/oauth/token"
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, _, body = hub.exchange(asked)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler, host=host, context=context) as hub.url:
        yield hub
