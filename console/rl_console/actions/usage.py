"""Speed and resources of jobs, and of the pods of one job, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rl_console.cluster.kube import Cluster
from rl_console.errors import ConsoleError
from rl_console.jobs import JobObject
from rl_console.output import Column, Listing
from rl_console.pods import PodView
from rl_console.quantities import number_of
from rl_console.view import ENDED_PHASES, count, duration, rate
from rl_contracts.spec.resources import GROUP

OF_JOBS = (
    Column(heading="NAME"),
    Column(heading="PHASE"),
    Column(heading="GPUS", right=True),
    Column(heading="CPU", right=True),
    Column(heading="MEMORY", right=True),
    Column(heading="TOKENS/S", right=True),
    Column(heading="BACKLOG", right=True),
    Column(heading="TRAINER WAITS", right=True),
    Column(heading="LEFT", right=True),
)
OF_PODS = (
    Column(heading="POD"),
    Column(heading="ROLE"),
    Column(heading="READY"),
    Column(heading="RESTARTS", right=True),
    Column(heading="CPU", right=True),
    Column(heading="MEMORY", right=True),
    Column(heading="NODE", wide=True),
    Column(heading="TROUBLE", text=True),
)
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods"
MEBI = 1 << 20


def of_jobs(jobs: Sequence[Mapping[str, Any]], *, namespace: str) -> Listing:
    """Jobs that have not ended, those with the most GPUs first.

    Args:
        jobs: as the API server has them.
        namespace: of all of them; empty: of several.
    """
    parsed = [(JobObject.parse(raw), raw) for raw in jobs]
    working = [each for each in parsed if each[0].status.phase not in ENDED_PHASES]
    working.sort(key=lambda each: (-each[0].status.resources.gpus, each[0].name))
    named = () if namespace else (Column(heading="NAMESPACE"),)
    return Listing(
        columns=(*named, *OF_JOBS),
        rows=[_job_row(job, named=not namespace) for job, _ in working],
        objects=[raw for _, raw in working],
        kind=f"rljob.{GROUP}",
        empty="No RLJobs are at work.",
    )


def _job_row(job: JobObject, *, named: bool) -> Sequence[str]:
    status, progress = job.status, job.status.progress
    left = progress.seconds_left
    return (
        *((job.namespace,) if named else ()),
        job.name,
        status.phase,
        str(status.resources.gpus),
        status.resources.cpu,
        status.resources.memory,
        rate(progress.tokens_per_second),
        count(progress.backlog),
        f"{progress.trainer_wait_share:.0%}",
        "–" if left is None else duration(left),
    )


def of_pods(cluster: Cluster, namespace: str, job: str) -> Listing:
    """The pods of a job; CPU and memory if the cluster measures them."""
    pods = cluster.pods_of(namespace, job)
    used = _used(cluster, namespace)
    return Listing(
        columns=OF_PODS,
        rows=[_pod_row(pod, used.get(pod.name)) for pod in pods],
        objects=[
            {"metadata": {"name": pod.name, "namespace": namespace}, **asdict(pod)} for pod in pods
        ],
        kind="pod",
        empty=f"RLJob {namespace}/{job} has no pods.",
    )


def _used(cluster: Cluster, namespace: str) -> dict[str, tuple[float, float]]:
    """Cores and bytes that each pod uses, from metrics-server; empty without it."""
    try:
        path = METRICS.format(namespace)
        listed = cluster.api.request("GET", path, doing=f"reading usage of pods of {namespace}")
    except ConsoleError:  # metrics-server is not installed, is down, or may not be asked
        return {}
    return {
        item["metadata"]["name"]: (
            sum(number_of(each["usage"]["cpu"]) for each in item["containers"]),
            sum(number_of(each["usage"]["memory"]) for each in item["containers"]),
        )
        for item in listed.get("items", [])
    }


def _pod_row(pod: PodView, used: tuple[float, float] | None) -> Sequence[str]:
    ready = sum(container.ready for container in pod.containers)
    return (
        pod.name,
        pod.role,
        f"{ready}/{len(pod.containers)} {pod.phase}",
        str(sum(container.restarts for container in pod.containers)),
        "–" if used is None else f"{used[0]:.2f}",
        "–" if used is None else f"{used[1] / MEBI:,.0f}Mi",
        pod.node,
        pod.trouble,
    )
