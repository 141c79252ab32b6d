"""The part of W&B's protocol that a run needs, as wandb 0.29 speaks it.

GraphQL begins a run and asks where files go; history and summary come as lines of a file stream.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HISTORY, SUMMARY = "wandb-history.jsonl", "wandb-summary.json"


@dataclass
class StoredRun:
    """What the server keeps of a run."""

    entity: str
    project: str
    name: str | None = None
    tags: list[str] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    starts: int = 0


@dataclass
class WandbServer:
    """Runs by id, and the keys that clients sent."""

    runs: dict[str, StoredRun] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    url: str = ""

    def answer(self, operation: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer a GraphQL operation."""
        if operation == "ServerFeaturesQuery":
            return {"serverInfo": {"features": []}}
        if operation == "RunResumeStatus":
            run = self.runs.get(asked["name"])
            where = {"id": "e", "name": asked["entity"] or "of-the-key"}
            bucket = run and _resumed(asked["name"], run)
            return {
                "model": {"id": "p", "name": asked["project"], "entity": where, "bucket": bucket}
            }
        if operation == "UpsertBucket":
            return {"upsertBucket": {"bucket": self._begun(asked), "inserted": True}}
        if operation == "CreateRunFiles":
            files = [
                {"name": name, "uploadUrl": f"{self.url}/upload/{name}"} for name in asked["files"]
            ]
            return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}
        return {}

    def _begun(self, asked: dict[str, Any]) -> dict[str, Any]:
        entity = asked["entity"] or "of-the-key"
        run = self.runs.setdefault(asked["name"], StoredRun(entity, asked["project"]))
        if asked["displayName"]:  # later upserts leave these out
            run.starts += 1
            run.name, run.tags = asked["displayName"], asked["tags"] or []
        project = {"id": "p", "name": run.project, "entity": {"id": "e", "name": run.entity}}
        return {
            "id": f"id-{asked['name']}",
            "name": asked["name"],
            "displayName": run.name,
            "description": "",
            "config": asked["config"],
            "sweepName": None,
            "project": project,
            "historyLineCount": len(run.history),
        }

    def streamed(self, run_id: str, files: dict[str, dict[str, Any]]) -> None:
        """Take lines of a run's files at their offsets."""
        run = self.runs[run_id]
        if HISTORY in files:
            part = files[HISTORY]
            lines = [json.loads(line) for line in part["content"]]
            run.history[part["offset"] :] = lines
        if SUMMARY in files:
            run.summary = json.loads(files[SUMMARY]["content"][-1])


def _resumed(name: str, run: StoredRun) -> dict[str, Any]:
    return {
        "id": f"id-{name}",
        "name": name,
        "summaryMetrics": json.dumps(run.summary),
        "displayName": run.name,
        "logLineCount": 0,
        "historyLineCount": len(run.history),
        "eventsLineCount": 0,
        "historyTail": json.dumps([json.dumps(line) for line in run.history[-1:]]),
        "eventsTail": "[]",
        "config": "{}",
        "tags": run.tags,
        "notes": None,
        "wandbConfig": '{"t": 1}',  # wandb writes it when a run really begins
    }


@contextmanager
def serving_wandb() -> Iterator[WandbServer]:
    """Serve on a free port of the loopback interface."""
    server = WandbServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def _body(self) -> bytes:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            zipped = self.headers.get("Content-Encoding") == "gzip"
            return gzip.decompress(body) if zipped else body

        def _reply(self, value: object) -> None:
            text = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_PUT(self) -> None:
            self._body()
            self._reply({})

        def do_POST(self) -> None:
            server.keys.add(self.headers.get("Authorization", ""))
            asked = json.loads(self._body())
            if self.path == "/graphql":
                operation = asked.get("operationName", "")
                self._reply({"data": server.answer(operation, asked.get("variables") or {})})
                return
            _, _, _, _, run, _ = self.path.split("/")
            server.streamed(run, asked.get("files") or {})
            self._reply({})

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
