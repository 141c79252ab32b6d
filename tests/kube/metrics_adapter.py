"""What a Prometheus adapter is to an HPA: pod metrics, served through the API server.

The numbers are the test's. The API server asks it as it asks any aggregated API, by a Service that
is a name of the loopback interface.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.kube.apiserver import ApiServer
from tests.network.authority import Authority
from tests.network.loopback import listening

GROUP, VERSION = "custom.metrics.k8s.io", "v1beta2"
ROOT = f"/apis/{GROUP}/{VERSION}"
NAME, NAMESPACE = "metrics-adapter", "default"
TIME = "2026-01-01T00:00:00Z"
"""Of every measurement; an HPA takes the newest there is."""


@dataclass
class PodMetrics:
    """One metric of some pods."""

    metric: str
    values: dict[str, int] = field(default_factory=dict)
    """By pod."""
    selectors: list[str] = field(default_factory=list)
    """By which pods were asked for."""

    def answer(self, path: str) -> dict[str, Any] | None:
        """The body for a request; None: there is no such thing."""
        place = urlsplit(path)
        parts = unquote(place.path).removeprefix(ROOT).strip("/").split("/")
        if not place.path.startswith(ROOT):
            return None
        if parts == [""]:
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/{VERSION}",
                "resources": [],
            }
        if len(parts) != 5 or (parts[0], parts[2:]) != ("namespaces", ["pods", "*", self.metric]):
            return None
        self.selectors += parse_qs(place.query).get("labelSelector", [])
        items = [self._item(parts[1], pod, value) for pod, value in self.values.items()]
        return {
            "kind": "MetricValueList",
            "apiVersion": f"{GROUP}/{VERSION}",
            "metadata": {},
            "items": items,
        }

    def _item(self, namespace: str, pod: str, value: int) -> dict[str, Any]:
        described = {"apiVersion": "/v1", "kind": "Pod", "namespace": namespace, "name": pod}
        return {
            "describedObject": described,
            "metric": {"name": self.metric},
            "timestamp": TIME,
            "value": str(value),
        }


@contextmanager
def served(apiserver: ApiServer, metrics: PodMetrics, folder: Path) -> Iterator[None]:
    """Serve metrics until the block ends, as the API server's custom metrics."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = metrics.answer(self.path)
            body = json.dumps(answer or {}).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    context: ssl.SSLContext = Authority().context(folder)
    with listening(Handler, context=context) as url:
        _register(apiserver, int(url.rpartition(":")[2]))
        try:
            yield
        finally:
            apiserver.kubectl("delete", "apiservice", f"{VERSION}.{GROUP}")
            apiserver.kubectl("-n", NAMESPACE, "delete", "service", NAME)


def _register(apiserver: ApiServer, port: int) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    api_service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": NAME, "namespace": NAMESPACE, "port": port},
        },
    }
    items = {"apiVersion": "v1", "kind": "List", "items": [service, api_service]}
    apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(items))
    apiserver.kubectl(
        "wait", "--for=condition=Available", "--timeout=120s", f"apiservice/{VERSION}.{GROUP}"
    )
