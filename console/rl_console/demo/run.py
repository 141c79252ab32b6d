"""Applies the example's RLJob and follows it to its end."""

from __future__ import annotations

from rl_console import tools
from rl_console.cluster.kube import Cluster
from rl_console.demo.settings import JOB, NAMESPACE, DemoSettings
from rl_console.demo.stages import Stages
from rl_console.errors import NotFoundError
from rl_console.following.follow import Limits
from rl_console.following.session import Session
from rl_console.jobs import JobObject

DELETE_SECONDS = 180.0
RUN_SECONDS = 1500.0
STALLED_SECONDS = 300.0
"""The example's manifest is right, so what stalls it is the cluster, e.g. a full node that starts a
reader's pod late, and the job goes on once that is over."""


def remove_earlier(settings: DemoSettings) -> None:
    """Delete an earlier job of the same name and wait until it is gone."""
    command = settings.tools.kubectl_command(
        "delete",
        "rljob",
        JOB,
        "--namespace",
        NAMESPACE,
        "--ignore-not-found",
        "--timeout",
        f"{DELETE_SECONDS:.0f}s",
    )
    tools.run(command, seconds=DELETE_SECONDS + 10, doing=f"deleting RLJob {JOB}")


def apply_job(settings: DemoSettings) -> None:
    """Apply the example's manifest with kubectl."""
    command = settings.tools.kubectl_command(
        "apply", "--namespace", NAMESPACE, "-f", str(settings.manifest)
    )
    tools.run(command, doing=f"applying {settings.manifest.name}")


def follow_job(cluster: Cluster, stages: Stages) -> JobObject:
    """Follow the job to its end; raises StageFailedError unless it completes."""
    session = Session(
        cluster=cluster,
        console=stages.console,
        namespace=NAMESPACE,
        job=JOB,
        before=stages.elapsed,
    )
    ending = session.follow(Limits(total_seconds=RUN_SECONDS, stalled_seconds=STALLED_SECONDS))
    if not ending.succeeded:
        raise session.explain(ending)
    if ending.snapshot is None:
        raise NotFoundError(doing=f"reading RLJob {NAMESPACE}/{JOB}")
    return ending.snapshot.job
