"""A small server with the Hugging Face hub's addresses for writing a model, for the real client."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.network.loopback import listening

JSON = {"Content-Type": "application/json"}
COMMIT = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)/(?P<verb>preupload|commit)/main")
Answer = tuple[int, bytes]


@dataclass
class ModelHub:
    """Repositories of models; every file is committed as it is, none by Git LFS."""

    token: str
    """Nobody else may write."""
    failures: int = 0
    """So many requests are answered by 503 first."""
    uploading: Callable[[], object] = lambda: None
    """Called before a file is taken."""
    url: str = ""
    private: dict[str, bool] = field(default_factory=dict)
    """By repository."""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """By repository and path."""
    commits: list[str] = field(default_factory=list)
    """Their messages."""

    def answer(self, path: str, authorization: str, body: bytes) -> Answer:
        if self.failures > 0:
            self.failures -= 1
            return 503, b"{}"
        if authorization != f"Bearer {self.token}":
            return 403, b'{"error": "this token may not write"}'
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return 200, b'{"errors": [], "warnings": []}'
        match = COMMIT.fullmatch(path.partition("?")[0])
        if match is None or match["repo"] not in self.files:
            return 404, b'{"error": "no such repository"}'
        if match["verb"] == "commit":
            return self._commit(match["repo"], body)
        self.uploading()
        asked = json.loads(body)["files"]
        regular = [
            {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in asked
        ]
        return 200, json.dumps({"files": regular}).encode()

    def _create(self, asked: dict[str, object]) -> Answer:
        name = "/".join(str(asked[key]) for key in ("organization", "name") if asked.get(key))
        if name in self.files:
            return 409, json.dumps({"error": "it exists", "url": f"{self.url}/{name}"}).encode()
        self.files[name], self.private[name] = {}, asked["visibility"] == "private"
        return 200, json.dumps({"url": f"{self.url}/{name}", "name": name}).encode()

    def _commit(self, repo: str, body: bytes) -> Answer:
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "header":
                self.commits.append(value["summary"])
            else:
                self.files[repo][value["path"]] = base64.b64decode(value["content"])
        oid = f"{len(self.commits):040x}"
        return 200, json.dumps(
            {"commitOid": oid, "commitUrl": f"{self.url}/{repo}/commit/{oid}"}
        ).encode()


@contextmanager
def serving(hub: ModelHub) -> Iterator[ModelHub]:
    """Serve it on the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            authorization = self.headers.get("Authorization", "")
            status, answer = hub.answer(self.path, authorization, body)
            self.send_response(status)
            for name, value in {**JSON, "Content-Length": str(len(answer))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as hub.url:
        yield hub
