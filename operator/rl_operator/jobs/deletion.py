"""Deletes a job after its pods, which hold its queue's quota, and after its run's data.

The data are deleted if ``lifecycle.dataPolicy`` is ``Delete``.
"""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube import kinds, names
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.conditions import Stall
from rl_operator.kube.kinds import Key
from rl_operator.kube.metadata import Meta
from rl_operator.kube.plan import Delete
from rl_operator.kube.timestamps import parse_time
from rl_operator.kueue import admission
from rl_operator.state.snapshot import Job, JobSnapshot
from rl_operator.status.operation import STOP_SECONDS
from rl_operator.stores.adoption import Adoption
from rl_operator.stores.deletions import Deletions

TRUE = "true"


def due(job: Job) -> float | None:
    """When to delete a finished job, in seconds since 1970; None: it stays."""
    ended = parse_time(job.status.completion_time)
    ttl = job.spec.lifecycle.ttl_seconds_after_finished if job.spec else None
    return None if ttl is None or ended is None else ended + ttl


def has_finalizer(job: Meta) -> bool:
    """Whether our finalizer holds a job."""
    return names.FINALIZER in job.finalizers


def settle_finalizer(
    cluster: Cluster, snapshot: JobSnapshot, spec: RLJobSpec, *, checked: bool
) -> bool:
    """Add or remove our finalizer as the job needs it; return whether that took a write."""
    wanted = _wants_finalizer(snapshot, spec, checked=checked)
    if wanted == has_finalizer(snapshot.job.meta):
        return False
    set_finalizer(cluster, snapshot.job.meta, present=wanted)
    return True


def _wants_finalizer(snapshot: JobSnapshot, spec: RLJobSpec, *, checked: bool) -> bool:
    """Whether a job may be deleted only after its pods and its data.

    A job whose pods were never allowed has neither: it is deleted at once, even if its stores do
    not answer.
    """
    workload = admission.of(snapshot)
    # Deleting the job deletes its Workload, which releases the quota.
    quota = workload is not None and workload.reserved and not workload.finished
    deletes_data = spec.lifecycle.data_policy == "Delete"
    return quota or (deletes_data and _may_have_data(snapshot, checked=checked))


def _may_have_data(snapshot: JobSnapshot, *, checked: bool) -> bool:
    """Whether a run may have data: its pods exist, did exist, or are about to."""
    job = snapshot.job
    adopted = job.finished and job.meta.adopted_run  # its run may have been complete already
    may_have_pods = checked and not job.held
    return may_have_pods or bool(job.status.attempt or snapshot.pools or snapshot.pods or adopted)


def set_finalizer(cluster: Cluster, job: Meta, *, present: bool) -> None:
    """Add our finalizer to a job, or remove it.

    It is removed whoever added it: a restored backup has it, and our apply would take away
    only what our manager owns.

    Raises:
        ApiConflictError: the job has changed since it was observed.
    """
    metadata: dict[str, object] = {"name": job.name, "namespace": job.namespace, "uid": job.uid}
    if not present:
        others = [each for each in job.finalizers if each != names.FINALIZER]
        metadata |= {"finalizers": others, "resourceVersion": job.resource_version}
        cluster.merge(kinds.RLJOB, {"metadata": metadata})
        return
    manifest = {
        "apiVersion": kinds.RLJOB.api_version,
        "kind": kinds.RLJOB.name,
        "metadata": metadata | {"finalizers": [names.FINALIZER]},
    }
    cluster.apply(kinds.RLJOB, manifest, manager=names.FINALIZER_MANAGER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a deletion has come."""

    done: bool = False
    actions: tuple[Delete, ...] = ()
    stall: Stall | None = None


def proceed(
    snapshot: JobSnapshot, deletions: Deletions, adoption: Adoption, *, now: float
) -> Progress:
    """Take the next step of a deletion that our finalizer delays.

    The trainer and the samplers are stopped first: they could write deleted data again. Data of a
    run that the job was refused stay: they are another job's.
    """
    if snapshot.job.meta.annotations.get(names.ABANDON_ANNOTATION) == TRUE:
        return Progress(done=True)
    stopping = tuple(
        Delete(kind=kind, name=child.meta.name, uid=child.meta.uid)
        for kind in (kinds.PYTORCH_JOB, kinds.SAMPLER_POOL)
        for child in snapshot.children.values()
        if child.kind == kind.name
        and child.meta.deleted_at is None
        and child.meta.owner_uid == snapshot.job.meta.uid
    )
    if stopping or snapshot.all_pods:
        return Progress(actions=stopping, stall=_pods_not_stopping(snapshot, now))
    if not snapshot.job.basics.deletes_data:
        return Progress(done=True)
    key, job = snapshot.key, snapshot.job
    if not adoption.owns_run(job.meta, attempts=job.status.attempt):
        return Progress(done=True)
    if job.spec is None:
        return Progress(stall=_blocked(key, f"The spec is not valid: {job.spec_error}"))
    deleted = deletions.proceed(key, job.spec.storage.secret_name, job.meta.run)
    stall = _blocked(key, deleted.problem) if deleted.problem else None
    return Progress(done=deleted.done, stall=stall)


def _pods_not_stopping(snapshot: JobSnapshot, now: float) -> Stall | None:
    since = snapshot.job.meta.deleted_at or now
    if now - since <= STOP_SECONDS:
        return None
    left = ", ".join(sorted(pod.name for pod in snapshot.all_pods)[:5])
    cause = f"Pods still exist after {STOP_SECONDS:.0f} s: {left}."
    if snapshot.job.basics.deletes_data:
        return _blocked(snapshot.key, cause)
    remedy = "Check their nodes, or release the queue's quota before these pods terminate"
    return Stall(reason="PodsNotStopping", message=f"{cause} {remedy}: {_command(snapshot.key)}")


def _blocked(key: Key, cause: str) -> Stall:
    remedy = f"Fix the cause, or abandon the data: {_command(key)}"
    return Stall(reason="DataDeletionBlocked", message=f"{cause.strip().rstrip('.')}. {remedy}")


def _command(key: Key) -> str:
    """The command that lets a job be deleted at once, without waiting."""
    return f"kubectl annotate -n {key.namespace} rljob {key.name} {names.ABANDON_ANNOTATION}=true"
