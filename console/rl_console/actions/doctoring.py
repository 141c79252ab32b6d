"""Examines a cluster and a namespace: what is there, what is missing, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rl_console.actions import cluster_checks, namespace_checks
from rl_console.actions.finding import Check, Finding, tried
from rl_console.cluster.kube import Cluster
from rl_console.output import Column, Listing

COLUMNS = (
    Column(heading="CHECK"),
    Column(heading="STATE"),
    Column(heading="FINDING", text=True),
    Column(heading="REMEDY", text=True),
)
CHECKS: dict[str, Check] = {
    "definitions": cluster_checks.definitions,
    "training-operator": cluster_checks.training_operator,
    "operator": cluster_checks.operator,
    "kueue": cluster_checks.kueue,
    "agent-sandbox": cluster_checks.agent_sandbox,
    "gpus": cluster_checks.gpus,
    "namespace": namespace_checks.existence,
    "secret": namespace_checks.secret,
    "reader": namespace_checks.reader,
    "stores": namespace_checks.stores,
    "rights": namespace_checks.rights,
}


def listing_of(findings: Sequence[Finding]) -> Listing:
    """Findings as a table."""
    return Listing(
        columns=COLUMNS,
        rows=[(each.check, each.state, each.detail, each.remedy) for each in findings],
        objects=[
            {
                "metadata": {"name": each.check},
                "state": each.state,
                "detail": each.detail,
                "remedy": each.remedy,
            }
            for each in findings
        ],
        kind="finding",
    )


def examine(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """All findings; raises ClusterUnavailableError if the API server does not answer at all."""
    yield from cluster_checks.server(cluster)
    for name, check in CHECKS.items():
        yield from tried(name, check, cluster, namespace)
