"""A retrieval service over a collection of documents, with Python's standard library alone.

It ranks by BM25 with SQLite's FTS5 and answers as the servers of Search-R1 and verl do. The
collection is a file in JSON Lines: each document has `contents`, whose first line is its title.
"""

import argparse
import json
import re
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PATH = "/retrieve"
MOST_BYTES = 1 << 20
MOST_QUERIES = 64
MOST_DOCUMENTS = 100
MOST_WORDS = 64
IDLE_SECONDS = 60
LENGTH = f"a request has a Content-Length of at most {MOST_BYTES} bytes"


class BadRequestError(Exception):
    """A request in another form than the service understands."""


class Collection:
    """An index in memory; safe to use from several threads."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        self._index.execute(
            "CREATE VIRTUAL TABLE documents USING fts5"
            "(contents, document UNINDEXED, tokenize = 'porter unicode61')"
        )
        documents = [json.loads(line) for line in lines if line.strip()]
        rows = [(document["contents"], json.dumps(document)) for document in documents]
        self._index.executemany("INSERT INTO documents VALUES (?, ?)", rows)

    def search(self, query: str, most: int) -> list[dict[str, Any]]:
        """The best documents, those of equal score in the order of the file."""
        words = re.findall(r"\w+", query)[:MOST_WORDS]
        if not words:
            return []
        with self._lock:
            rows = self._index.execute(
                "SELECT document, -bm25(documents) FROM documents WHERE documents MATCH ?"
                " ORDER BY bm25(documents), rowid LIMIT ?",
                (" OR ".join(f'"{word}"' for word in words), most),
            ).fetchall()
        return [{"document": json.loads(document), "score": score} for document, score in rows]


def answer(collection: Collection, body: bytes) -> dict[str, Any]:
    """The reply to a request's body; raises BadRequestError."""
    try:
        asked = json.loads(body)
        queries, most = asked["queries"], asked.get("topk", 3)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise BadRequestError('the body must be {"queries": […], "topk": …}') from error
    texts = isinstance(queries, list) and all(isinstance(query, str) for query in queries)
    if not texts or not 1 <= len(queries) <= MOST_QUERIES:
        raise BadRequestError(f"queries must be 1 to {MOST_QUERIES} texts")
    if type(most) is not int or not 1 <= most <= MOST_DOCUMENTS:
        raise BadRequestError(f"topk must be a number from 1 to {MOST_DOCUMENTS}")
    return {"result": [collection.search(query, most) for query in queries]}


class Handler(BaseHTTPRequestHandler):
    """POST /retrieve, and GET /health for the kubelet."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    collection: Collection

    def do_GET(self) -> None:
        """Whether it serves."""
        self._reply(HTTPStatus.OK if self.path == "/health" else HTTPStatus.NOT_FOUND, {})

    def do_POST(self) -> None:
        """Documents for queries."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True
            self._reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"detail": LENGTH})
            return
        body = self.rfile.read(int(length))
        if self.path != PATH:
            self._reply(HTTPStatus.NOT_FOUND, {"detail": f"queries are posted to {PATH}"})
            return
        try:
            self._reply(HTTPStatus.OK, answer(self.collection, body))
        except BadRequestError as error:
            self._reply(HTTPStatus.BAD_REQUEST, {"detail": str(error)})

    def _reply(self, status: HTTPStatus, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *parts: object) -> None:
        """Nothing: an agent asks many times a second."""


class Server(ThreadingHTTPServer):
    """Takes as many connections at once as a fleet of samplers opens."""

    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    """Command line: `python server.py --collection FILE`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collection", type=Path, required=True, help="in JSON Lines")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000, help="0: a free one, which is printed")
    arguments = parser.parse_args()
    with arguments.collection.open(encoding="utf-8") as lines:
        Handler.collection = Collection(lines)
    server = Server((arguments.host, arguments.port), Handler)
    # The first process of a container has no other end: it ignores signals that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"listening on port {server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
