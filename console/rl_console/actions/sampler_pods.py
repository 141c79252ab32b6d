"""Size of a job's sampler groups, and eviction of their pods."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rl_console.cluster.api import MERGE_PATCH
from rl_console.cluster.kube import Cluster, path
from rl_console.errors import (
    ClusterUnavailableError,
    NotFoundError,
    RequestRefusedError,
    TimeOverError,
    UsageError,
)
from rl_contracts.spec.resources import GROUP

POLL_SECONDS = 5.0


def pool_of(raw: Mapping[str, Any], group: str) -> tuple[str, str]:
    """Name of a group of a job, and of its SamplerPool.

    Args:
        raw: the job as the API server has it.
        group: empty: the only one.

    Raises:
        UsageError: there is no such group, or there are several.
    """
    name = raw["metadata"]["name"]
    groups = {each["name"]: each for each in raw["spec"].get("samplers") or []}
    if not groups:
        raise UsageError(f"RLJob {name} has no samplers")
    if group not in groups and (group or len(groups) > 1):
        message = (
            f"RLJob {name} has no group {group!r}" if group else f"RLJob {name} has several groups"
        )
        raise UsageError(message, remedy=f"Choose one with --group: {', '.join(groups)}")
    chosen = group or next(iter(groups))
    shared = (groups[chosen].get("poolRef") or {}).get("name")
    return chosen, shared or f"{name}-{chosen}"


def scale_group(cluster: Cluster, namespace: str, job: str, *, group: str, replicas: int) -> str:
    """Set the size of a group's pool; return what to tell the user.

    Raises:
        RequestRefusedError: the operator sets the size itself.
        UsageError: the group is not clear.
    """
    chosen, pool = pool_of(cluster.raw_job(namespace, job), group)
    doing = f"scaling SamplerPool {namespace}/{pool}"
    try:
        raw = cluster.api.request("GET", path("samplerpools", namespace, pool), doing=doing)
    except NotFoundError as error:
        raise NotFoundError(
            doing=doing,
            remedy="The pool is made when the job starts, and is gone when the job has ended",
        ) from error
    template = raw["spec"].get("template") or {}
    if (template.get("autoscaling") or {}).get("mode") == "Builtin":
        raise RequestRefusedError(
            doing=doing,
            cause="autoscaling.mode is Builtin, so the operator sets the size itself",
            remedy="Change autoscaling.minReplicas and maxReplicas of "
            f"spec.samplers[name={chosen}].template in the job",
        )
    before = raw["spec"].get("replicas", 1)
    cluster.api.request(
        "PATCH",
        path("samplerpools", namespace, pool, "scale"),
        doing=doing,
        body={"spec": {"replicas": replicas}},
        content_type=MERGE_PATCH,
    )
    admitted = raw["spec"].get("admitted")
    limit = f"; the queue has admitted {admitted}" if admitted is not None else ""
    return f"samplerpool.{GROUP}/{pool} scaled from {before} to {replicas}{limit}"


def drain_pods(
    cluster: Cluster,
    namespace: str,
    job: str,
    *,
    pods: Sequence[str],
    node: str,
    timeout: float,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[str]:
    """Evict sampler pods one after the other; yields a line for each.

    Args:
        cluster: where they are.
        namespace: of the job.
        job: its name.
        pods: names of pods.
        node: all sampler pods of the job on this node.
        timeout: seconds to wait until the disruption budget admits an eviction.
        sleep: waits.
        monotonic: a clock.

    Raises:
        UsageError: neither pods nor node are named, or both, or a pod is no sampler of the job.
        TimeOverError: the disruption budget did not admit it in time.
    """
    if bool(pods) == bool(node):
        raise UsageError("name either pods or a node", remedy="Use --pod or --node")
    cluster.raw_job(namespace, job)
    chosen = _chosen(cluster, namespace, job, pods, node)
    deadline = monotonic() + timeout
    for pod in chosen:
        while not (outcome := _eviction(cluster, namespace, pod)):
            if monotonic() >= deadline:
                raise TimeOverError(
                    f"the disruption budget did not admit the eviction of {pod} in {timeout:.0f} s",
                    remedy="Wait until the other sampler pods are ready, or scale the group up",
                )
            sleep(POLL_SECONDS)
        yield f"pod/{pod} {outcome}"


def _chosen(
    cluster: Cluster, namespace: str, job: str, names: Sequence[str], node: str
) -> list[str]:
    pods = cluster.pods_of(namespace, job)
    top = f"kubectl rl top {job} {cluster.options(namespace)}"
    samplers = {pod.name: pod for pod in pods if pod.role == "sampler"}
    if node:
        there = [name for name, pod in samplers.items() if pod.node == node]
        if not there:
            raise NotFoundError(
                doing=f"looking for sampler pods of {job} on node {node}",
                remedy=f"`{top} -o wide` shows where they are",
            )
        return there
    for name in names:
        if name not in samplers:
            raise UsageError(
                f"{name} is no sampler pod of {job}",
                remedy=f"`{top}` shows them; evicting a trainer would be a failure",
            )
    return list(names)


def _eviction(cluster: Cluster, namespace: str, pod: str) -> str:
    """Ask for an eviction, and say what came of it; empty: the disruption budget forbids it now."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    try:
        cluster.api.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction",
            doing=f"evicting pod {namespace}/{pod}",
            body=body,
        )
    except ClusterUnavailableError as error:
        if "disruption budget" in str(error):
            return ""
        raise
    except NotFoundError:  # e.g. its pool was scaled down meanwhile
        return "is gone already"
    return "evicted"
