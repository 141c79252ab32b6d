"""Suspension of a job, and its end before the last step."""

from __future__ import annotations

import time
from collections.abc import Callable

from rl_console.cluster.api import MERGE_PATCH
from rl_console.cluster.kube import Cluster, path
from rl_console.errors import ClusterUnavailableError, RequestRefusedError, TimeOverError
from rl_console.jobs import JobObject
from rl_console.plain_text import plain_line
from rl_console.view import condition, has_ended, is_true
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
        RequestRefusedError: the job has ended, or is being stopped for good. While it is waited
            for, it was stopped or failed, or was complete before it was suspended.
        TimeOverError: it was not done in time.
    """
    doing = f"{'suspending' if suspended else 'resuming'} RLJob {namespace}/{job}"
    _set(cluster, namespace, job, "suspend", suspended, doing=doing)
    message = f"rljob.{GROUP}/{job} {'suspended' if suspended else 'resumed'}"
    if wait is None:
        return message
    reached = _is_suspended if suspended else _is_at_work
    current = _await(cluster, namespace, job, reached, seconds=wait, doing=doing)
    if is_true(current.status, "Complete"):
        return f"{message}: it is complete"
    return f"{message}: {'all its pods are gone' if suspended else 'it is at work'}"


def stop_job(cluster: Cluster, namespace: str, job: str, *, wait: float | None) -> str:
    """End a job's run for good; return what to tell the user.

    Args:
        cluster: where the job is.
        namespace: of the job.
        job: its name.
        wait: seconds to wait until it has ended; None: no wait.

    Raises:
        RequestRefusedError: the job has ended.
        TimeOverError: it was not done in time.
    """
    doing = f"stopping RLJob {namespace}/{job}"
    _set(cluster, namespace, job, "stop", True, doing=doing)
    if wait is None:
        return f"rljob.{GROUP}/{job} stops"
    ended = _await(
        cluster, namespace, job, lambda read: has_ended(read.status), seconds=wait, doing=doing
    )
    final = condition(ended.status, "Failed") or condition(ended.status, "Complete")
    message = plain_line(final.message) if final else ""
    return f"rljob.{GROUP}/{job} {ended.status.phase}: {message}"


def _set(
    cluster: Cluster, namespace: str, job: str, field: str, value: bool, *, doing: str
) -> None:
    """Set a switch of a job that has not ended, unless it has the value already.

    An API server whose CRD is older drops a field that it does not know, without an error.
    """
    raw = cluster.raw_job(namespace, job)
    refuse_ended(cluster, JobObject.parse(raw), doing=doing)
    if raw["spec"].get(field, False) is value:
        return
    if raw["spec"].get("stop"):
        remedy = f"Once it has ended, {_retry(cluster, namespace, job)}"
        raise RequestRefusedError(doing=doing, cause="it is being stopped for good", remedy=remedy)
    changed = cluster.api.request(
        "PATCH",
        path("rljobs", namespace, job),
        doing=doing,
        body={"spec": {field: value}},
        content_type=MERGE_PATCH,
    )
    if changed["spec"].get(field, False) is not value:
        cause = f"the cluster's CRD does not know spec.{field}"
        remedy = "Upgrade the chart, or use a kubectl-rl of the operator's version"
        raise RequestRefusedError(doing=doing, cause=cause, remedy=remedy)


def refuse_ended(cluster: Cluster, job: JobObject, *, doing: str) -> None:
    """Raise RequestRefusedError for a job that is over."""
    if is_true(job.status, "Complete"):
        raise RequestRefusedError(doing=doing, cause="it is complete")
    if is_true(job.status, "Failed"):
        remedy = _retry(cluster, job.namespace, job.name)
        was = "it was stopped" if job.status.phase == "Stopped" else "it has failed"
        raise RequestRefusedError(doing=doing, cause=was, remedy=remedy)


def _retry(cluster: Cluster, namespace: str, job: str) -> str:
    return f"`kubectl rl retry {job} {cluster.options(namespace)}` continues its run"


def _await(
    cluster: Cluster,
    namespace: str,
    job: str,
    reached: Callable[[JobObject], bool],
    *,
    seconds: float,
    doing: str,
) -> JobObject:
    """Wait until the operator has seen the job's spec and the job is as wanted.

    Raises:
        RequestRefusedError: it has ended, and will never be.
        TimeOverError: it is not in time.
    """
    deadline = time.monotonic() + seconds
    state = "has not been read"
    while True:
        outage = ""
        try:
            current = cluster.within(deadline - time.monotonic()).job(namespace, job)
        except ClusterUnavailableError as error:
            outage = f". At the end {error}"
        else:
            if _is_over(cluster, current, reached, doing=doing):
                return current
            state = f"is {current.status.phase}"
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeOverError(
                f"{job} {state} after {seconds:.0f} s{outage}",
                remedy=f"It goes on; `kubectl rl status {job} {cluster.options(namespace)}` says "
                "what it waits for",
            )
        pause(min(POLL_SECONDS, left))


def _is_over(
    cluster: Cluster, job: JobObject, reached: Callable[[JobObject], bool], *, doing: str
) -> bool:
    """Whether a job is as wanted; raises RequestRefusedError where it never will be."""
    ended = has_ended(job.status)
    seen = job.status.observed_generation >= job.generation
    if (ended or seen) and reached(job):
        return True
    if ended:
        refuse_ended(cluster, job, doing=doing)
    return False


def _is_suspended(job: JobObject) -> bool:
    return not has_ended(job.status) and is_true(job.status, "Suspended")


def _is_at_work(job: JobObject) -> bool:
    """Or was, until it was complete."""
    if has_ended(job.status):
        return is_true(job.status, "Complete")
    return not is_true(job.status, "Suspended") and is_true(job.status, "Ready")
