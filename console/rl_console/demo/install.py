"""The chart on the cluster: operator, embedded stores, and the namespaces that may use them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rl_console import tools
from rl_console.cluster.kube import Cluster
from rl_console.demo.background import background
from rl_console.demo.release import read_own, repair_interrupted
from rl_console.demo.settings import RELEASE, RELEASE_NAMESPACE, RESTRICTED, DemoSettings
from rl_console.demo.stages import Stages
from rl_console.errors import ClusterUnavailableError, StageFailedError
from rl_console.following.failure import choose_log, troubles
from rl_console.tools import Tools

HELM_SECONDS = 400.0
HELM_GRACE_SECONDS = 20.0
"""helm ends by itself at its own timeout; this much later it is killed."""
READY_SECONDS = 300.0
LOG_LINES = 25


def namespace_manifest(name: str) -> dict[str, Any]:
    """A Namespace that enforces the restricted pod security standard."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": RESTRICTED},
    }


def remedy(cluster: Cluster) -> str:
    """What to do where pods do not become ready."""
    options = cluster.options(RELEASE_NAMESPACE)
    return (
        f"Run `kubectl get pods {options}` and `kubectl describe pods {options}`: they show images "
        "that cannot be pulled and volumes that cannot be bound."
    )


def chart_values(
    settings: DemoSettings, *, namespaces: Sequence[str], current: dict[str, Any]
) -> dict[str, Any]:
    """Chart values; namespaces that an earlier installation serves are kept, and share the stores.

    A demo's data is worth no protection from its own user.
    """
    served = current.get("stores", {}).get("namespaces", [])
    return {
        "images": settings.images,
        "imagePullPolicy": "IfNotPresent",
        "stores": {
            "embedded": {"enabled": True, "allowSharing": True},
            "storageClass": settings.storage_class,
            "namespaces": sorted({*served, *namespaces}),
        },
    }


def install(
    settings: DemoSettings, cluster: Cluster, stages: Stages, *, namespaces: Sequence[str]
) -> None:
    """Install or upgrade the chart and wait until all of its pods are ready.

    Raises:
        StageFailedError: the release there is not the demo's, helm failed, or pods were not ready
            in time.
    """
    release = read_own(settings)
    for name in (RELEASE_NAMESPACE, *namespaces):
        create_namespace(settings.tools, name)
    repair_interrupted(settings.tools, release)
    values = chart_values(settings, namespaces=namespaces, current=release.get("config", {}))
    path = settings.cache / "chart-values.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1))
    command = settings.tools.helm_command(
        "upgrade",
        RELEASE,
        str(settings.checkout / "charts" / RELEASE),
        "--install",
        "--namespace",
        RELEASE_NAMESPACE,
        "--values",
        str(path),
        "--timeout",
        f"{HELM_SECONDS:.0f}s",
    )
    with background(command, settings.cache / "helm.log") as helm:
        helm.wait(
            stages,
            what="helm",
            seconds=HELM_SECONDS + HELM_GRACE_SECONDS,
            remedy=remedy(cluster),
            describe=lambda: _unready(cluster),
        )
    _await_ready(cluster, stages)


def create_namespace(kubectl: Tools, name: str) -> None:
    """Create a namespace; one that exists keeps the labels that its owner chose."""
    command = kubectl.kubectl_command(
        "get", "namespace", name, "--ignore-not-found", "--output", "name"
    )
    if tools.run(command, doing=f"reading Namespace {name}").strip():
        return
    command = kubectl.kubectl_command("create", "-f", "-")
    manifest = json.dumps(namespace_manifest(name))
    tools.run(command, stdin=manifest, doing=f"creating Namespace {name}")


def _unready(cluster: Cluster) -> str:
    """Workloads of the release that are not ready, and why."""
    try:
        waiting = [
            workload for workload in cluster.workloads(RELEASE_NAMESPACE) if not workload.settled
        ]
        counts = [
            f"{workload.kind} {workload.name} {workload.ready}/{workload.desired}"
            for workload in waiting
        ]
        return ", ".join([*counts, *troubles(cluster.pods(RELEASE_NAMESPACE))]) or "all ready"
    except ClusterUnavailableError as error:
        return str(error)


def _await_ready(cluster: Cluster, stages: Stages) -> None:
    def ready() -> bool | None:
        try:
            workloads = cluster.workloads(RELEASE_NAMESPACE)
        except ClusterUnavailableError:
            return None
        return True if workloads and all(workload.settled for workload in workloads) else None

    def failed() -> StageFailedError:
        pods = cluster.pods(RELEASE_NAMESPACE)
        wanted = choose_log([], [pod for pod in pods if not pod.ready])
        if wanted is None:
            return StageFailedError(f"not ready: {_unready(cluster)}", remedy=remedy(cluster))
        log = cluster.log_tail(
            wanted.pod, wanted.container, lines=LOG_LINES, previous=wanted.previous
        )
        return StageFailedError(
            f"not ready within {READY_SECONDS:.0f} s: {_unready(cluster)}",
            remedy=remedy(cluster),
            log_name=f"{wanted.pod.name}/{wanted.container}",
            log=log,
        )

    stages.wait(
        ready,
        what="the operator and the stores",
        seconds=READY_SECONDS,
        describe=lambda: _unready(cluster),
        failed=failed,
    )
