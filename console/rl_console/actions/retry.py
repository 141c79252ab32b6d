"""A new job that continues the run of a failed one."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rl_console.cluster.api import ALREADY_EXISTS
from rl_console.cluster.kube import Cluster, path
from rl_console.errors import (
    ClusterUnavailableError,
    ConsoleError,
    NotAllowedError,
    NotFoundError,
    RequestRefusedError,
    TimeOverError,
    UsageError,
)
from rl_console.jobs import JobObject
from rl_console.output import Output, document
from rl_console.view import is_true
from rl_contracts.spec.resources import GROUP

POLL_SECONDS = 1.0
GONE_SECONDS = 120.0
"""How long a deleted job may take to go: its pods end first if it has quota of a queue."""
MADE_AGAIN = "another program, e.g. one that applies manifests from Git, made the job again at once"
KEPT_METADATA = ("name", "namespace", "labels", "annotations")
DROPPED_ANNOTATIONS = (
    "kubectl.kubernetes.io/last-applied-configuration",
    f"{GROUP}/abandon-data",
)
EXCEEDED_QUOTA = "exceeded quota"  # its reason is Forbidden, as where the user has no right
RETAIN = '{"spec":{"lifecycle":{"dataPolicy":"Retain"}}}'


def replacement(cluster: Cluster, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a job that continues the run of a failed one.

    Args:
        cluster: where the job is, for messages.
        raw: the job as it was read.

    Raises:
        RequestRefusedError: the job has not failed, or its data would be deleted with it.
    """
    job = JobObject.parse(raw)
    doing = f"retrying RLJob {job.namespace}/{job.name}"
    meant = f"{job.name} {cluster.options(job.namespace)}"
    if not is_true(job.status, "Failed"):
        raise RequestRefusedError(
            doing=doing,
            cause=f"it is {job.status.phase}, and only a job with the condition Failed has ended "
            "for good",
            remedy=f"`kubectl rl status {meant}` says what it waits for",
        )
    spec = dict(raw["spec"])
    if (spec.get("lifecycle") or {}).get("dataPolicy") == "Delete":
        raise RequestRefusedError(
            doing=doing,
            cause="spec.lifecycle.dataPolicy is Delete, and the run would be deleted with the job",
            remedy="Set it to Retain first: "
            f"`kubectl patch rljob {meant} --type=merge -p '{RETAIN}'`",
        )
    metadata = {key: raw["metadata"][key] for key in KEPT_METADATA if key in raw["metadata"]}
    annotations = metadata.get("annotations") or {}
    kept = {key: value for key, value in annotations.items() if key not in DROPPED_ANNOTATIONS}
    metadata["annotations"] = kept
    return {
        "apiVersion": raw["apiVersion"],
        "kind": "RLJob",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {**spec, "runId": job.run, "suspend": False, "stop": False},
    }


def require_creatable(cluster: Cluster, manifest: Mapping[str, Any]) -> None:
    """Try to create a job without effect, before the old one of its name is deleted.

    Raises:
        ConsoleError: the API server would refuse it, e.g. because the user may not create jobs.
    """
    metadata = manifest["metadata"]
    try:
        cluster.api.request(
            "POST",
            path("rljobs", metadata["namespace"]),
            doing=f"trying whether RLJob {metadata['namespace']}/{metadata['name']} can be created "
            "again, before it is deleted",
            body=manifest,
            query={"dryRun": "All"},
        )
    except RequestRefusedError as error:
        # The old job has the name, and counts for quota: both only until it is deleted.
        if error.reason != ALREADY_EXISTS and EXCEEDED_QUOTA not in str(error):
            raise


def write_manifest(manifest: Mapping[str, Any], file: Path) -> None:
    """Write a manifest, never over another file; raises UsageError."""
    try:
        with file.open("x") as opened:
            opened.write(document(manifest, Output.YAML) + "\n")
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror}", remedy="Name another file with --save"
        ) from error


def replace_job(
    cluster: Cluster,
    raw: Mapping[str, Any],
    manifest: Mapping[str, Any],
    *,
    saved: Path,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Delete a job, wait until it is gone, and create its replacement.

    Args:
        cluster: where it is.
        raw: the job as it was read; another one of its name is not deleted.
        manifest: of the replacement.
        saved: file with the manifest, for messages.
        sleep: waits.

    Raises:
        ConsoleError: a request failed. Where the deletion was refused or not sent, the saved
            manifest is removed; otherwise the message names the manifest, also after Ctrl-C.
    """
    metadata = raw["metadata"]
    doing = f"retrying RLJob {metadata['namespace']}/{metadata['name']}"
    again = _creation(cluster, metadata["namespace"], saved)
    later = f"Once the old job is gone, {again}"
    _delete(cluster, metadata, saved)
    try:
        _await_gone(cluster, metadata, sleep, later=later)
        _create(cluster, manifest, saved, doing=doing)
    except _MadeAgainError as error:
        raise RequestRefusedError(
            doing=doing, cause=MADE_AGAIN, remedy=_commit(cluster, manifest)
        ) from error
    except ClusterUnavailableError as error:
        raise ClusterUnavailableError(
            doing=doing, cause=error.cause, remedy=later, status=error.status
        ) from error
    except KeyboardInterrupt:
        print(f"The job is being deleted. {later}", file=sys.stderr)
        raise


def _create(cluster: Cluster, manifest: Mapping[str, Any], saved: Path, *, doing: str) -> None:
    metadata = manifest["metadata"]
    try:
        cluster.api.request(
            "POST",
            path("rljobs", metadata["namespace"]),
            doing=f"creating RLJob {metadata['namespace']}/{metadata['name']}",
            body=manifest,
        )
    except ClusterUnavailableError:
        raise
    except ConsoleError as error:
        if isinstance(error, RequestRefusedError) and error.reason == ALREADY_EXISTS:
            raise _MadeAgainError(MADE_AGAIN) from error
        remedy = f"The old job is deleted: {_creation(cluster, metadata['namespace'], saved)}"
        raise _with_remedy(error, doing=doing, remedy=remedy) from error


def _with_remedy(error: ConsoleError, *, doing: str, remedy: str) -> ConsoleError:
    """An error of the same exit code that says how to go on."""
    if isinstance(error, NotFoundError):
        return NotFoundError(doing=f"{doing}: {error}", remedy=remedy)
    kind = NotAllowedError if isinstance(error, NotAllowedError) else RequestRefusedError
    return kind(doing=doing, cause=str(error), remedy=remedy)


class _MadeAgainError(ConsoleError):
    """There is another job of the deleted one's name."""


def _creation(cluster: Cluster, namespace: str, saved: Path) -> str:
    file = shlex.quote(str(saved))
    return f"run `kubectl create -f {file} {cluster.options(namespace)}` to continue its run"


def _commit(cluster: Cluster, manifest: Mapping[str, Any]) -> str:
    run, metadata = manifest["spec"]["runId"], manifest["metadata"]
    meant = f"{metadata['name']} {cluster.options(metadata['namespace'])}"
    return (
        f"It has begun a new run. Commit `runId: {run}` below `spec` of its manifest, which cannot "
        f"change in a job, then run `kubectl delete rljob {meant}`: the job that is made "
        "next continues the run"
    )


def _delete(cluster: Cluster, metadata: Mapping[str, Any], saved: Path) -> None:
    namespace, name = metadata["namespace"], metadata["name"]
    doing = f"deleting RLJob {namespace}/{name}"
    meant = f"{name} {cluster.options(namespace)}"
    unknown = (
        f"It is not known whether the job was deleted: if `kubectl rl status {meant}` still shows "
        f"it, remove {saved} and run `kubectl rl retry {meant}` again; else "
        f"{_creation(cluster, namespace, saved)}"
    )
    try:
        cluster.api.request(
            "DELETE",
            path("rljobs", namespace, name),
            doing=doing,
            body={"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"},
        )
    except NotFoundError:  # somebody else deleted it, which is what was to be done
        return
    except RequestRefusedError:  # the job is there: nothing is to be made from the manifest
        saved.unlink(missing_ok=True)
        raise
    except ClusterUnavailableError as error:
        if not error.sent:
            saved.unlink(missing_ok=True)
            raise
        raise ClusterUnavailableError(
            doing=doing, cause=error.cause, remedy=unknown, status=error.status
        ) from error
    except KeyboardInterrupt:
        print(unknown, file=sys.stderr)
        raise


def _await_gone(
    cluster: Cluster, metadata: Mapping[str, Any], sleep: Callable[[float], None], *, later: str
) -> None:
    """Wait until the job is gone.

    Raises:
        _MadeAgainError: another one has its name.
        TimeOverError: it is not gone in time.
        ClusterUnavailableError: it is not known whether it is.
        RequestRefusedError: the user may not read the job, or not any more.
    """
    namespace, name = metadata["namespace"], metadata["name"]
    deadline = time.monotonic() + GONE_SECONDS
    while True:
        try:
            current = cluster.raw_job(namespace, name)
        except NotFoundError:
            return
        except ClusterUnavailableError:
            if time.monotonic() > deadline:
                raise
        except ConsoleError as error:
            doing = f"waiting until RLJob {namespace}/{name} is gone"
            raise _with_remedy(error, doing=doing, remedy=later) from error
        else:
            if current["metadata"]["uid"] != metadata["uid"]:
                raise _MadeAgainError(MADE_AGAIN)
            if time.monotonic() > deadline:
                message = f"RLJob {namespace}/{name} is not gone after {GONE_SECONDS:.0f} s"
                raise TimeOverError(message, remedy=later)
        sleep(POLL_SECONDS)
