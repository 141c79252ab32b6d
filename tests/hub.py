"""A small server with the Hugging Face hub's layout of addresses, for the real client to ask."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.loopback import listening

REPO = "org/sums"
Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""


@dataclass
class FakeHub:
    """One dataset, of which each commit holds files by name."""

    commits: dict[str, Mapping[str, bytes]]
    main: str
    token: str = ""
    """When set, nothing is shown without it."""
    failures: int = 0
    """So many requests are answered by 503 first."""
    url: str = ""
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and Authorization header."""

    def answer(self, method: str, path: str, authorization: str) -> Answer:
        self.requests.append((method, path, authorization))
        if self.failures > 0:
            self.failures -= 1
            return 503, {}, b""
        if self.token and authorization != f"Bearer {self.token}":
            return 401, {"X-Error-Code": "RepoNotFound"}, b"{}"
        described, resolved = f"/api/datasets/{REPO}/revision/", f"/datasets/{REPO}/resolve/"
        if path.startswith(described):
            return self._describe(path.removeprefix(described))
        if path.startswith(resolved):
            return self._file(*path.removeprefix(resolved).split("/", 1))
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"

    def _describe(self, revision: str) -> Answer:
        commit = self.main if revision == "main" else revision
        if commit not in self.commits:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        siblings = [{"rfilename": name} for name in self.commits[commit]]
        body = {"id": REPO, "sha": commit, "private": False, "tags": [], "siblings": siblings}
        return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()

    def _file(self, commit: str, name: str) -> Answer:
        data = self.commits.get(commit, {}).get(name)
        if data is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        etag = f'"{hashlib.sha1(data, usedforsecurity=False).hexdigest()}"'
        return 200, {"X-Repo-Commit": commit, "ETag": etag}, data


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve a hub on the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = hub.answer(
                self.command, self.path, self.headers.get("Authorization", "")
            )
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as hub.url:
        yield hub
