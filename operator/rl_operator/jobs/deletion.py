"""When a job goes, and what has to be over before: pods that hold its queue's quota, a run's data.

The latter where ``lifecycle.dataPolicy`` says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.errors import RLError
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.stores.clients.unexpected import unexpected_answers
from rl_operator.kube import kinds, names
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.conditions import Stall
from rl_operator.kube.kinds import Key
from rl_operator.kube.metadata import Meta
from rl_operator.kube.plan import Delete
from rl_operator.kube.timestamps import parse_time
from rl_operator.kueue import admission
from rl_operator.state.progress import plain
from rl_operator.state.snapshot import Job, JobSnapshot
from rl_operator.status.operation import STOP_SECONDS
from rl_operator.stores.connections import Connections

TRUE = "true"


def due(job: Job) -> float | None:
    """When a job that is over is to be deleted, in seconds since 1970; None: it stays."""
    ended = parse_time(job.status.completion_time)
    ttl = job.spec.lifecycle.ttl_seconds_after_finished if job.spec else None
    return None if ttl is None or ended is None else ended + ttl


def has_finalizer(job: Meta) -> bool:
    """Whether our finalizer holds a job."""
    return names.FINALIZER in job.finalizers


def settle_finalizer(
    cluster: Cluster, snapshot: JobSnapshot, spec: RLJobSpec, *, checked: bool
) -> bool:
    """Hold a job by our finalizer as long as it needs that; whether anything was to be written."""
    wanted = _wants_finalizer(snapshot, spec, checked=checked)
    if wanted == has_finalizer(snapshot.job.meta):
        return False
    set_finalizer(cluster, snapshot.job.meta, present=wanted)
    return True


def _wants_finalizer(snapshot: JobSnapshot, spec: RLJobSpec, *, checked: bool) -> bool:
    """Whether a job must not go before its pods, and its data, have gone.

    One whose pods were never allowed has neither: it goes at once, whatever its stores are like.
    """
    workload = admission.of(snapshot)
    # Its Workload goes with it, and with that the quota.
    quota = workload is not None and workload.reserved and not workload.finished
    deletes_data = spec.lifecycle.data_policy == "Delete"
    return quota or (deletes_data and _may_have_data(snapshot, checked=checked))


def _may_have_data(snapshot: JobSnapshot, *, checked: bool) -> bool:
    """Whether anything may have been written for a run: its pods are there, or about to be."""
    job = snapshot.job
    adopted = job.finished and job.meta.adopted_run  # it may have been complete as it was found
    return checked or bool(job.status.attempt or snapshot.pools or snapshot.pods or adopted)


def set_finalizer(cluster: Cluster, job: Meta, *, present: bool) -> None:
    """Add our finalizer to a job, or take it away."""
    finalizers = [names.FINALIZER] if present else []
    manifest = {
        "apiVersion": kinds.RLJOB.api_version,
        "kind": kinds.RLJOB.name,
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
            "finalizers": finalizers,
        },
    }
    cluster.apply(kinds.RLJOB, manifest, manager=names.FINALIZER_MANAGER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a deletion has come."""

    done: bool = False
    actions: tuple[Delete, ...] = ()
    stall: Stall | None = None


def proceed(snapshot: JobSnapshot, connections: Connections, *, now: float) -> Progress:
    """Take the next step of a deletion that our finalizer holds up.

    The run's own writers go first: they would write again what is deleted.
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
    if stopping or snapshot.pods:
        return Progress(actions=stopping, stall=_slow(snapshot, now))
    if not snapshot.job.basics.deletes_data:
        return Progress(done=True)
    key = snapshot.key
    if snapshot.job.spec is None:
        return Progress(stall=_blocked(key, f"The spec is not valid: {snapshot.job.spec_error}"))
    secret = snapshot.job.spec.storage.secret_name
    found = connections.of(key.namespace, secret)
    # A namespace that is deleted loses its Secret first: the clients made of it still serve.
    stores = found.stores or connections.last(key.namespace, secret)
    if stores is None:
        return Progress(stall=_blocked(key, str(found.refusal)))
    run = snapshot.job.meta.run
    try:
        with unexpected_answers():
            stores.objects.delete_prefix(stores.run_prefix(run))
            stores.mongo.delete_run(run)
    except RLError as error:
        return Progress(stall=_blocked(key, plain(str(error))))
    return Progress(done=True)


def _slow(snapshot: JobSnapshot, now: float) -> Stall | None:
    since = snapshot.job.meta.deleted_at or now
    if now - since <= STOP_SECONDS:
        return None
    left = ", ".join(sorted(pod.name for pod in snapshot.pods)[:5])
    cause = f"Pods are still there after {STOP_SECONDS:.0f} s: {left}."
    if snapshot.job.basics.deletes_data:
        return _blocked(snapshot.key, cause)
    remedy = "Look at their nodes, or give the queue its quota back before they have gone"
    return Stall(reason="PodsNotStopping", message=f"{cause} {remedy}: {_command(snapshot.key)}")


def _blocked(key: Key, cause: str) -> Stall:
    remedy = f"Mend that, or give the data up: {_command(key)}"
    return Stall(reason="DataDeletionBlocked", message=f"{cause.strip().rstrip('.')}. {remedy}")


def _command(key: Key) -> str:
    """What lets a job go at once."""
    return f"kubectl annotate -n {key.namespace} rljob {key.name} {names.ABANDON_ANNOTATION}=true"
