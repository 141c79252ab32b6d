"""Allocates a shared pool: to one run at a time in the order of requests, or to several.

Pure. The pool's status names the jobs that have it, under an epoch that grows with every change. It
is written at the version that was observed, so that one of two operators decides. The pool's
Deployment carries the epoch that it was written for; it is also changed only at the version that
was observed, and never by an operator that knows an older epoch. A free pool is assigned only while
its Deployment is at 0 and no pod is left. Further runs may join as ``engine_sharing`` allows; then
pods of the old and of the new set exist together until the old ones are replaced. So pods of runs
that cannot share an engine never run together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rl_contracts.spec.pool_status import AssignmentStatus, WaitingStatus
from rl_contracts.spec.status import Condition
from rl_operator.attempts import start_gate
from rl_operator.attempts.lifecycle import lingers
from rl_operator.kube.conditions import find, is_true
from rl_operator.kube.timestamps import format_time, parse_time
from rl_operator.pools import engine_sharing
from rl_operator.state import pool_ref
from rl_operator.state.pod import Pod
from rl_operator.state.snapshot import Job, Pool, PoolSnapshot

ASSIGNED = "PoolAssigned"
"""Condition of a job that names a shared pool; absent while it asks for no pool."""
WAITING = "WaitingForPool"
"""Its reason while the job asks for the pool."""
KEPT_WAITING = 32
"""Entries of the queue that the status shows."""
STALLED_SECONDS = 60.0
"""A job that cannot start keeps a pool for at most this long while others wait for it."""

Step = Literal["Create", "Empty", "Serve", "Rest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Which jobs have the pool now, and which wait."""

    epoch: int
    began: int = 0
    """The epoch at which the present holders got the pool while it was free."""
    holders: tuple[AssignmentStatus, ...] = ()
    """Jobs that have the pool, in the order in which they got it."""
    queue: tuple[Job, ...] = ()
    """Jobs that wait, in the order in which they get it; no holder is among them."""
    left: tuple[Pod, ...] = ()
    """Pods of the last run that must terminate before the pool is assigned again."""
    why: str = ""
    """Why the first job of the queue cannot join; empty where the pool serves one run at a time."""

    @property
    def holder(self) -> AssignmentStatus | None:
        """The job that has had it longest."""
        return self.holders[0] if self.holders else None

    def waiting(self) -> list[WaitingStatus]:
        """The first entries of the queue, as the status shows them."""
        entries = [
            WaitingStatus(job=job.meta.name, since=condition.last_transition_time)
            for job in self.queue[:KEPT_WAITING]
            if (condition := asks(job)) is not None
        ]
        first = [entry.model_copy(update={"why": self.why}) for entry in entries[:1]]
        return first + entries[1:]


def asks(job: Job) -> Condition | None:
    """The condition by which a job asks for its pool, if it does."""
    condition = find(job.status.conditions, ASSIGNED)
    asking = condition is not None and (condition.status, condition.reason) == ("False", WAITING)
    return condition if asking and _may_have(job) else None


def decide(snapshot: PoolSnapshot, *, now: float) -> Allocation:
    """The allocation after this reconcile.

    Args:
        snapshot: of the pool; a change of the epoch needs one that was read live.
        now: seconds since 1970.
    """
    pool, deployment = snapshot.pool, snapshot.deployment
    status = pool.status
    left = tuple(pod for pod in snapshot.pods if lingers(pod, now))
    queue = tuple(job for job in _queue(snapshot.jobs, pool) if not pool.serves(job))
    epoch, began = status.assignment_epoch, status.assignment_began
    if deployment.epoch > epoch:  # the status was lost, e.g. with a backup
        return Allocation(epoch=deployment.epoch + 1, queue=queue, left=left)
    holders, kept = pool.holders, _kept(snapshot, others_wait=bool(queue), now=now)
    if kept != holders:
        gone = () if kept else left
        return Allocation(epoch=epoch + 1, began=began, holders=kept, queue=queue, left=gone)
    new = _next(snapshot, queue, now=now)
    if not new:
        why = _obstacle(snapshot, queue)
        left = () if kept else left
        return Allocation(epoch=epoch, began=began, holders=kept, queue=queue, left=left, why=why)
    return Allocation(
        epoch=epoch + 1,
        began=began if kept else epoch + 1,
        holders=(*kept, *(_assigned(job, now=now) for job in new)),
        queue=queue[len(new) :],
    )


def _kept(snapshot: PoolSnapshot, *, others_wait: bool, now: float) -> tuple[AssignmentStatus, ...]:
    """Holders that keep the pool.

    A job that was edited and can no longer share with the others must ask again. Only one that has
    not begun can be edited so: those that have begun come first.
    """
    pool, kept = snapshot.pool, list[Job]()
    for job in sorted(snapshot.served, key=lambda job: not job.started):
        stays = _keeps(job, pool, others_wait=others_wait, now=now)
        if stays and engine_sharing.keeps(job, kept):
            kept.append(job)
    uids = {job.meta.uid for job in kept}
    return tuple(holder for holder in pool.holders if holder.uid in uids)


def _next(snapshot: PoolSnapshot, queue: Sequence[Job], *, now: float) -> tuple[Job, ...]:
    """Jobs that get the pool now, beside its holders or because it is free."""
    pool, served = snapshot.pool, snapshot.served
    if pool.spec is None or pool.meta.deleted_at is not None:
        return ()
    if not served and not empty(snapshot, now=now):
        return ()
    return engine_sharing.joining(queue, served, pool.spec)


def _obstacle(snapshot: PoolSnapshot, queue: Sequence[Job]) -> str:
    """Why the first job of the queue does not get the pool beside its holders."""
    spec = snapshot.pool.spec
    if spec is None or spec.max_runs == 1 or not queue:
        return ""
    return engine_sharing.obstacle(queue[0], snapshot.served, spec)


def _assigned(job: Job, *, now: float) -> AssignmentStatus:
    return AssignmentStatus(
        job=job.meta.name, uid=job.meta.uid, run=job.meta.run, since=format_time(now)
    )


def empty(snapshot: PoolSnapshot, *, now: float) -> bool:
    """Whether no pod of the pool is left and none can appear.

    A pod that is a minute over its grace period is on an unreachable node and is not waited for.
    """
    deployment = snapshot.deployment
    at_zero = deployment.observed and deployment.declared == deployment.replicas == 0
    stopped = at_zero or not deployment.exists
    return stopped and not any(lingers(pod, now) for pod in snapshot.pods)


def step(snapshot: PoolSnapshot, *, now: float) -> Step:
    """The next step with the pool's Deployment, by the pool's status.

    ``Create`` creates it empty, ``Empty`` scales it to 0, ``Serve`` writes the holders' pods.
    """
    status, deployment = snapshot.pool.status, snapshot.deployment
    behind = deployment.epoch < status.assignment_epoch
    # None of the earlier holders is left: their pods have to terminate first.
    began = status.assignment_began
    handed_on = behind and (not began or deployment.epoch < began)
    if deployment.epoch > status.assignment_epoch:
        return "Rest"  # an operator with newer knowledge has written it
    if status.assignment is None:
        return "Empty" if deployment.exists and (deployment.declared or behind) else "Rest"
    if not deployment.exists:
        return "Create"
    if handed_on and not empty(snapshot, now=now):
        return "Empty" if deployment.declared else "Rest"
    return "Serve"


def in_use(snapshot: PoolSnapshot, allocation: Allocation) -> bool:
    """Whether the pool must not be deleted: a run has it, or is about to get it."""
    coming = bool(allocation.queue) and snapshot.pool.meta.deleted_at is None
    return allocation.holder is not None or snapshot.deployment.declared > 0 or coming


def _queue(jobs: Sequence[Job], pool: Pool) -> list[Job]:
    """Jobs that ask for the pool, the earliest request first."""

    def place(job: Job) -> tuple[float, float, str]:
        condition = asks(job)
        since = parse_time(condition.last_transition_time) if condition is not None else None
        return since or 0.0, job.meta.created_at, job.meta.uid

    name = pool.meta.name
    asking = [job for job in jobs if pool_ref.of(job.spec) == name and asks(job) is not None]
    return sorted(asking, key=place)


def _may_have(job: Job) -> bool:
    gone = job.meta.deleted_at is not None or job.finished
    return not gone and not job.suspended


def _keeps(job: Job, pool: Pool, *, others_wait: bool, now: float) -> bool:
    """Whether a holder keeps the pool.

    One that cannot be read keeps the others' pods from being changed, so it keeps its place only
    once it has begun. Before that it asks again as soon as it can be read.
    """
    if not _may_have(job):
        return False
    begins = start_gate.applies(job.status)
    if job.spec is None and begins:
        return False
    if job.spec is not None and pool_ref.of(job.spec) != pool.meta.name:
        return False
    if not others_wait or not begins:
        return True
    stalled = find(job.status.conditions, "Stalled")
    if stalled is None or not is_true(job.status.conditions, "Stalled"):
        return True
    since = parse_time(stalled.last_transition_time)
    return since is None or now - since <= STALLED_SECONDS
