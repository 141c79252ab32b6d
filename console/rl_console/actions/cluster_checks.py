"""Checks of a cluster: server, clock, kinds, operator, queues, GPUs."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from rl_console import times
from rl_console.actions.finding import Finding, fault, good, warning
from rl_console.cluster.kube import Cluster
from rl_console.errors import NotFoundError
from rl_console.pods import PodView
from rl_console.quantities import number_of
from rl_contracts.spec.resources import GROUP, VERSION

LEAST_VERSION = (1, 31)
CLOCK_SECONDS = 30.0
GPU = re.compile(r"^(nvidia\.com/gpu|amd\.com/gpu|nvidia\.com/mig-.*)$")
OPERATOR = "app.kubernetes.io/part-of=rl-operator,app.kubernetes.io/component=operator"
KUEUE = "kueue.x-k8s.io/v1beta2"
"""What the operator reads; Kueue serves it since 0.15."""
INSTALL = "Install the chart: docs/getting-started/install.md"


def server(cluster: Cluster) -> Iterator[Finding]:
    """The API server answers and is new enough, and this machine's clock agrees with its own."""
    before = times.now()
    written, headers = cluster.api.answer("GET", "/version", doing="reading the server's version")
    version = tuple(int(re.sub(r"\D", "", written[part]) or 0) for part in ("major", "minor"))
    detail = f"Kubernetes {written['gitVersion']}"
    if version >= LEAST_VERSION:
        yield good("cluster", detail)
    else:
        yield fault("cluster", detail, "Upgrade to Kubernetes 1.31 or later")
    if date := headers.get("date"):
        yield _clock(email.utils.parsedate_to_datetime(date), before)


def _clock(theirs: datetime, ours: datetime) -> Finding:
    apart = abs((theirs - ours).total_seconds())
    if apart <= CLOCK_SECONDS:
        return good("clock", "this machine and the API server agree")
    detail = f"this machine and the API server are {times.short(apart)} apart"
    return warning("clock", detail, "Set the clock: tokens may be refused, and ages are wrong")


def definitions(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """The cluster knows our kinds."""
    path = f"/apis/{GROUP}/{VERSION}"
    try:
        listed = cluster.api.request("GET", path, doing="reading the kinds of the operator")
    except NotFoundError:
        yield fault("definitions", "RLJob and SamplerPool are not installed", INSTALL)
        return
    names = sorted(each["name"] for each in listed["resources"] if "/" not in each["name"])
    yield good("definitions", f"{', '.join(names)} {VERSION}")


def training_operator(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """The cluster knows PyTorchJob."""
    try:
        listed = cluster.api.request(
            "GET", "/apis/kubeflow.org/v1", doing="reading the kinds of training-operator"
        )
        names = [each["name"] for each in listed["resources"]]
    except NotFoundError:
        names = []
    if "pytorchjobs" in names:
        yield good("training-operator", "PyTorchJob is installed")
    else:
        remedy = "Install Kubeflow training-operator 1.9"
        yield fault("training-operator", "PyTorchJob is not installed", remedy)


def operator(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """The operator runs, and watches the namespace."""
    pods = cluster.pods("", OPERATOR)
    ready = [pod for pod in pods if pod.ready]
    if ready:
        yield _watching(ready, namespace)
    elif not pods:
        yield fault("operator", "it does not run", INSTALL)
    else:
        trouble = next((pod.trouble for pod in pods if pod.trouble), "")
        remedy = f"kubectl logs {pods[0].name} {cluster.options(pods[0].namespace)}"
        yield fault("operator", f"none of {len(pods)} pods is ready. {trouble}".strip(), remedy)


def _watching(ready: Sequence[PodView], namespace: str) -> Finding:
    places = ", ".join(sorted({pod.namespace for pod in ready}))
    detail = f"{len(ready)} ready in {places}"
    if any(not pod.watched or namespace in pod.watched for pod in ready):
        return good("operator", detail)
    watched = ", ".join(sorted({each for pod in ready for each in pod.watched}))
    return fault(
        "operator",
        f"{detail}; it watches {watched}, and not {namespace}, whose jobs nobody runs",
        f"Add {namespace} to the chart's value watchNamespaces: docs/getting-started/install.md",
    )


def kueue(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """The namespace has a queue, if the cluster has queues."""
    path = f"/apis/{KUEUE}/namespaces/{namespace}/localqueues"
    try:
        queues = cluster.api.request("GET", path, doing="listing queues")["items"]
    except NotFoundError:
        yield _without_queues(cluster)
        return
    names = ", ".join(sorted(each["metadata"]["name"] for each in queues))
    if names:
        yield good("kueue", f"queues of {namespace}: {names}")
    else:
        remedy = "Jobs with scheduling.provider Kueue need one: docs/guides/queues.md"
        yield warning("kueue", f"{namespace} has no LocalQueue", remedy)


def _without_queues(cluster: Cluster) -> Finding:
    group = KUEUE.partition("/")[0]
    try:
        cluster.api.request("GET", f"/apis/{group}", doing="reading the versions of Kueue")
    except NotFoundError:
        return good("kueue", "not installed; jobs need no queue")
    return fault("kueue", f"it does not serve {KUEUE}", "Upgrade to Kueue 0.15 or later")


def agent_sandbox(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """Whether agent-sandbox can make pods of episodes."""
    path = "/apis/extensions.agents.x-k8s.io/v1beta1"
    try:
        listed = cluster.api.request("GET", path, doing="reading the kinds of agent-sandbox")
    except NotFoundError:
        yield good("agent-sandbox", "not installed; pods of episodes are Kubernetes' own")
        return
    names = sorted(each["name"] for each in listed["resources"] if "/" not in each["name"])
    yield good("agent-sandbox", f"{', '.join(names)} v1beta1, for agent.program.podsFrom")


def gpus(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """Nodes offer GPUs."""
    nodes = cluster.api.request("GET", "/api/v1/nodes", doing="listing nodes")["items"]
    totals: dict[str, float] = {}
    for node in nodes:
        for name, amount in ((node.get("status") or {}).get("allocatable") or {}).items():
            if GPU.match(name):
                totals[name] = totals.get(name, 0) + number_of(amount)
    if totals:
        counts = ", ".join(f"{count:.0f} {name}" for name, count in sorted(totals.items()))
        yield good("gpus", f"{counts} on {len(nodes)} nodes")
    else:
        remedy = "Install the device plugin of your GPUs; without them only small models train"
        yield warning("gpus", f"none on {len(nodes)} nodes", remedy)
