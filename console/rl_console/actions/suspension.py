"""Suspension of a job."""

from __future__ import annotations

import time

from rl_console.api import MERGE_PATCH
from rl_console.errors import RequestRefusedError, TimeOverError
from rl_console.jobs import JobObject
from rl_console.kube import Cluster, path
from rl_console.view import is_true
from rl_contracts.spec.resources import GROUP

POLL_SECONDS = 1.0
pause = time.sleep


def set_suspended(
    cluster: Cluster,
    namespace: str,
    job: str,
    *,
    suspended: bool,
    wait: float | None,
) -> str:
    """Suspend or resume a job; return what to tell the user.

    Args:
        cluster: where the job is.
        namespace: of the job.
        job: its name.
        suspended: what ``spec.suspend`` should be.
        wait: seconds to wait until all pods are gone, or until the job is at work; None: no wait.

    Raises:
        RequestRefusedError: the job has ended.
        TimeOverError: it was not done in time.
    """
    raw = cluster.raw_job(namespace, job)
    doing = f"{'suspending' if suspended else 'resuming'} RLJob {namespace}/{job}"
    _refuse_ended(JobObject.parse(raw), doing=doing)
    if raw["spec"].get("suspend", False) is not suspended:
        cluster.api.request(
            "PATCH",
            path("rljobs", namespace, job),
            doing=doing,
            body={"spec": {"suspend": suspended}},
            content_type=MERGE_PATCH,
        )
    said = f"rljob.{GROUP}/{job} {'suspended' if suspended else 'resumed'}"
    if wait is None:
        return said
    _await(cluster, namespace, job, suspended=suspended, seconds=wait)
    return f"{said}: {'all its pods are gone' if suspended else 'it is at work'}"


def _refuse_ended(job: JobObject, *, doing: str) -> None:
    if is_true(job.status, "Complete"):
        raise RequestRefusedError(doing=doing, cause="it is complete")
    if is_true(job.status, "Failed"):
        remedy = f"`kubectl rl retry {job.name}` continues its run"
        raise RequestRefusedError(doing=doing, cause="it has failed", remedy=remedy)


def _await(
    cluster: Cluster,
    namespace: str,
    job: str,
    *,
    suspended: bool,
    seconds: float,
) -> None:
    deadline = time.monotonic() + seconds
    while not _reached(current := cluster.job(namespace, job), suspended=suspended):
        if time.monotonic() >= deadline:
            raise TimeOverError(
                f"{job} is {current.status.phase} after {seconds:.0f} s",
                remedy=f"It goes on; `kubectl rl status {job}` says what it waits for",
            )
        pause(POLL_SECONDS)


def _reached(job: JobObject, *, suspended: bool) -> bool:
    """Whether the job is as wanted, and the operator has seen its spec."""
    if job.status.observed_generation < job.generation:
        return False
    is_suspended = is_true(job.status, "Suspended")
    return is_suspended if suspended else not is_suspended and is_true(job.status, "Ready")
