"""A front before the API server that does to its clients what a bad day does.

It forwards requests and answers as they are, so that all but the faults is the real server's.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.kube.apiserver import ApiServer

HOP_HEADERS = {"connection", "transfer-encoding", "content-length", "host", "accept-encoding"}
GONE = {
    "type": "ERROR",
    "object": {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "too old resource version",
        "reason": "Expired",
        "code": 410,
    },
}


@dataclass(frozen=True)
class Fault:
    """What a request is told instead of its answer."""

    status: int
    done: bool = False
    """The server has done what was asked all the same."""

    def body(self) -> bytes:
        """As the API server words it."""
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.status}
        return json.dumps({**status, "message": "a fault that a test makes"}).encode()


@dataclass
class ApiFront:
    """One listening front."""

    url: str = ""
    fault: Callable[[str, str, str], Fault | None] = lambda method, path, agent: None
    """Asked with method, path and user agent of each request."""
    blinded: set[str] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)
    swallowed: list[str] = field(default_factory=list)
    """Plurals of the events that watches did not get to see."""

    def blind(self, plural: str) -> None:
        """From now on watches of this kind see nothing but bookmarks."""
        self.blinded.add(plural)

    def expire(self, plural: str) -> None:
        """End each watch of this kind that is open by 410 Gone, as when its version is too old."""
        self.expired.add(plural)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, apiserver: ApiServer, front: ApiFront) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.front, self.target = front, urlsplit(apiserver.url)
        self.context = ssl.create_default_context(cafile=str(apiserver.certificate))
        self.closing = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        watches = parse_qs(parts.query).get("watch") == ["true"]
        agent = self.headers.get("User-Agent", "")
        fault = self.server.front.fault(self.command, parts.path, agent)
        if fault is not None and not fault.done:
            return self.answer(fault.status, fault.body())
        with contextlib.closing(self.connected()) as upstream:
            upstream.connect()
            connection = upstream.sock  # the client forgets it once the answer has begun
            upstream.request(self.command, self.path, body or None, self.passed_on())
            response = upstream.getresponse()
            if watches and response.status == 200:
                return self.stream(response, connection, parts.path.rpartition("/")[2])
            data = response.read()
        if fault is not None:
            return self.answer(fault.status, fault.body())
        return self.answer(response.status, data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward  # noqa: N815 - http.server's

    def connected(self) -> http.client.HTTPSConnection:
        target = self.server.target
        assert target.hostname is not None
        return http.client.HTTPSConnection(
            target.hostname, target.port, context=self.server.context
        )

    def passed_on(self) -> dict[str, str]:
        return {key: value for key, value in self.headers.items() if key.lower() not in HOP_HEADERS}

    def answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(
        self, response: http.client.HTTPResponse, connection: socket.socket, plural: str
    ) -> None:
        """Pass a watch on, line by line, until either side or ``expire`` ends it."""
        self.server.front.expired.discard(plural)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines: queue.Queue[bytes] = queue.Queue()
        reader = threading.Thread(target=_read, args=(response, lines))
        reader.start()
        with contextlib.suppress(OSError):
            for line in self.seen(lines, plural):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        reader.join()
        self.close_connection = True

    def seen(self, lines: queue.Queue[bytes], plural: str) -> Iterator[bytes]:
        """What the client of a watch gets to see."""
        front = self.server.front
        while not self.server.closing.is_set():
            if plural in front.expired:
                yield json.dumps(GONE).encode() + b"\n"
                return
            try:
                line = lines.get(timeout=0.05)
            except queue.Empty:
                continue
            if not line:
                return
            if plural in front.blinded and json.loads(line)["type"] != "BOOKMARK":
                front.swallowed.append(plural)
            else:
                yield line


def _read(response: http.client.HTTPResponse, lines: queue.Queue[bytes]) -> None:
    """Put each line of a watch into a queue, and at its end an empty one."""
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        while line := response.readline():
            lines.put(line)
    lines.put(b"")


@contextlib.contextmanager
def fronting(apiserver: ApiServer) -> Iterator[ApiFront]:
    """A front of one's own, which speaks plain HTTP on the loopback interface."""
    front = ApiFront()
    with _Server(apiserver, front) as server:
        front.url = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield front
        finally:
            server.closing.set()
            server.shutdown()
            serving.join()
