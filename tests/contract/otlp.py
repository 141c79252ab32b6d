"""A receiver of OpenTelemetry's traces over HTTP, and the packages that send them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rl_local import venv
from tests.contract.rl_sampler.tools import third_party

REQUIREMENTS = Path(__file__).with_name("otlp-requirements.txt")


def exporter_packages() -> Path:
    """A folder for ``PYTHONPATH`` with what the images add to the packages of the tests."""
    return venv.site_packages(third_party.environment(REQUIREMENTS, "venv-otlp").parent)


@dataclass(frozen=True)
class Span:
    """A span as it was received."""

    name: str
    trace: int
    id: int
    parent: int
    """0 where it has none."""
    start: int
    end: int
    service: str
    facts: dict[str, Any]


@dataclass
class Receiver:
    """Keeps what it was sent."""

    url: str
    spans: list[Span] = field(default_factory=list)

    def of(self, trace: int) -> dict[str, list[Span]]:
        """The spans of a trace by name."""
        named: dict[str, list[Span]] = {}
        for span in list(self.spans):
            if span.trace == trace:
                named.setdefault(span.name, []).append(span)
        return named


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.spans += _spans(body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(url=f"http://127.0.0.1:{server.server_port}/v1/traces")
    thread = threading.Thread(target=server.serve_forever, name="otlp")
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _spans(body: bytes) -> Iterator[Span]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _facts(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    name=span.name,
                    trace=int.from_bytes(span.trace_id, "big"),
                    id=int.from_bytes(span.span_id, "big"),
                    parent=int.from_bytes(span.parent_span_id, "big"),
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    service=service,
                    facts=_facts(span.attributes),
                )


def _facts(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
