"""An endpoint of this machine as the operator's, for viewers who come through the API server."""

from __future__ import annotations

import json
import socket
from typing import Any

from tests.kube.apiserver import ApiServer, apply


def publish_operator(apiserver: ApiServer, namespace: str, port: int) -> None:
    """Put a port of this machine behind the chart's Service.

    The API server's proxy connects to addresses of pods alone, so the operator gets a pod with this
    machine's address.

    Args:
        apiserver: where the Service is made.
        namespace: of the operator; it exists.
        port: that the endpoint listens on, not on loopback alone.
    """
    name = {"name": "rl-operator", "namespace": namespace}
    address = _own_address()
    ports = [{"name": "data", "port": port, "protocol": "TCP"}]
    target = {"ip": address, "targetRef": {"kind": "Pod", **name}}
    parts: dict[str, dict[str, Any]] = {
        "Pod": {"spec": {"containers": [{"name": "operator", "image": "o:1"}]}},
        "Service": {"spec": {"ports": [{"name": "data", "port": 8091}]}},
        "Endpoints": {"subsets": [{"addresses": [target], "ports": ports}]},
    }
    items = [
        {"apiVersion": "v1", "kind": kind, "metadata": name, **part} for kind, part in parts.items()
    ]
    assert not apply(apiserver, {"apiVersion": "v1", "kind": "List", "items": items})
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    patch = ("patch", "pod", "rl-operator", "--subresource=status", "--type=merge")
    apiserver.kubectl("-n", namespace, *patch, "-p", json.dumps({"status": status}))


def _own_address() -> str:
    """The address with which this machine would reach another one: not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; chooses the interface
        return str(probe.getsockname()[0])
