"""Access to the cluster's API server: reads over HTTPS, writes through kubectl."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_local import progress
from rl_local.control_plane import probes
from rl_local.errors import LocalError
from rl_local.layout import NODE, Layout

FIELD_MANAGER = "rl-local"


def get(layout: Layout, path: str) -> dict[str, Any] | None:
    """Read the object at an API path of the local cluster; None when it does not exist.

    Raises:
        LocalError: the server's status is neither 200 nor 404.
    """
    tls = probes.client_identity(layout.state / "pki", "admin")
    connection = http.client.HTTPSConnection("127.0.0.1", 6443, timeout=10, context=tls)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise LocalError(f"the API server answered {answer.status} to GET {path}: {body[:300]!r}")
    parsed: dict[str, Any] = json.loads(body)
    return parsed


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl for a cluster.

    Attributes:
        program: the binary.
        target: arguments that name the cluster.
    """

    program: Path
    target: tuple[str, ...]

    @classmethod
    def local(cls, layout: Layout) -> Kubectl:
        """The local cluster's kubectl."""
        return cls(layout.tools / "kubectl", ("--kubeconfig", str(layout.kubeconfig)))

    def __call__(self, *arguments: str, timeout: float = 60, stdin: str | None = None) -> str:
        """Run kubectl and return what it printed."""
        return progress.output(
            [self.program, *self.target, *arguments], timeout=timeout, stdin=stdin
        )

    def apply(self, *arguments: str, stdin: str | None = None) -> None:
        """Apply manifests server-side with our field manager."""
        manager = f"--field-manager={FIELD_MANAGER}"
        self("apply", "--server-side", "--force-conflicts", manager, *arguments, stdin=stdin)


def condition_true(item: dict[str, Any], kind: str) -> bool:
    """Whether the condition ``kind`` of an object is True."""
    conditions = item.get("status", {}).get("conditions", [])
    return any(
        condition["type"] == kind and condition["status"] == "True" for condition in conditions
    )


def node_ready(layout: Layout) -> bool:
    """Whether the node is Ready."""
    node = get(layout, f"/api/v1/nodes/{NODE}")
    return node is not None and condition_true(node, "Ready")


def deployment_available(layout: Layout, namespace: str, name: str) -> bool:
    """Whether the newest version of a Deployment is rolled out and Available."""
    deployment = get(layout, f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    if deployment is None or not condition_true(deployment, "Available"):
        return False
    status, wanted = deployment["status"], deployment["spec"]["replicas"]
    return bool(
        status.get("observedGeneration") == deployment["metadata"]["generation"]
        and status.get("updatedReplicas") == wanted
        and status.get("availableReplicas") == wanted
    )


def pod_troubles(layout: Layout, namespace: str) -> str:
    """A line for each container of the namespace that waits or failed, with the reason."""
    pods = get(layout, f"/api/v1/namespaces/{namespace}/pods")
    lines: list[str] = []
    for pod in (pods or {}).get("items", []):
        statuses: Sequence[dict[str, Any]] = pod.get("status", {}).get("containerStatuses", [])
        for status in statuses:
            state = status["state"]
            why = state.get("waiting") or state.get("terminated")
            if why:
                message = why.get("message", "")
                lines.append(f"  {pod['metadata']['name']}: {why.get('reason')}: {message}")
    return "\n".join(lines) or "  (no container reports a reason)"
