"""The cluster that a notebook works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rl_console.cluster.api import REQUEST_SECONDS
from rl_console.cluster.kube import Cluster
from rl_console.names import require_name
from rl_console.queries.cluster_source import ClusterSource
from rl_console.tools import OPERATOR_NAMESPACE, Tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A cluster with the rights of one user. For any thread."""

    cluster: Cluster
    source: ClusterSource
    tools: Tools = field(default_factory=Tools)
    """kubectl forwards ports to pods."""

    @property
    def namespace(self) -> str:
        """Of jobs that name none."""
        return self.cluster.default_namespace

    def close(self) -> None:
        """Close forwarded ports, which only a user with a client certificate has."""
        self.source.close()


def connect(
    kubeconfig: str | Path | None = None,
    *,
    context: str | None = None,
    namespace: str | None = None,
    operator_namespace: str = OPERATOR_NAMESPACE,
    request_seconds: float = REQUEST_SECONDS,
) -> Connection:
    """Choose a cluster, without a request.

    Args:
        kubeconfig: its file. None: $KUBECONFIG or ~/.kube/config; within a pod that has neither,
            the pod's service account.
        context: of the kubeconfig; None: the current one.
        namespace: of jobs that name none; None: the context's, or the pod's.
        operator_namespace: where the operator is installed, which answers for data of runs.
        request_seconds: to connect, and between two parts of an answer.

    Raises:
        UsageError: the kubeconfig or the context does not exist, or the namespace cannot exist.
    """
    file = Path(kubeconfig) if kubeconfig else None
    cluster = Cluster.connect(file, context=context, request_seconds=request_seconds)
    tools = Tools(kubeconfig=file, context=context)
    if namespace:
        cluster.default_namespace = require_name("namespace", namespace)
    source = ClusterSource(cluster, tools, operator_namespace=operator_namespace)
    return Connection(cluster=cluster, source=source, tools=tools)
