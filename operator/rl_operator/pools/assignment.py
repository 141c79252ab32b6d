"""Who has a shared pool: runs one by one, in the order in which jobs asked for it, or several.

Pure. The pool's own status says who has it, under an epoch that grows with every change; it is
written at the version that was looked at, so that of two operators one decides. The pool's one
Deployment carries the epoch that it was written for and is changed at the version that was looked
at, too, never by who knows an older epoch. A pool that nobody has is given away only while the
Deployment is at 0 and no pod is left. While somebody has it others may join as ``engine_sharing``
says, and pods of the old and of the new set are there together until the old ones have been
replaced: so pods of runs that do not go together never are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rl_contracts.spec.status import AssignmentStatus, Condition, WaitingStatus
from rl_operator.attempts import start_gate
from rl_operator.attempts.lifecycle import lingers
from rl_operator.kube.conditions import find, is_true
from rl_operator.kube.timestamps import format_time, parse_time
from rl_operator.pools import engine_sharing
from rl_operator.state import pool_ref
from rl_operator.state.pod import Pod
from rl_operator.state.snapshot import Job, Pool, PoolSnapshot

ASSIGNED = "PoolAssigned"
"""Condition of a job that names a shared pool; absent while it asks for none."""
WAITING = "WaitingForPool"
"""Its reason while the job asks."""
KEPT_WAITING = 32
STALLED_SECONDS = 60.0
"""A job that cannot start keeps a pool that others wait for no longer than this."""

Step = Literal["Create", "Empty", "Serve", "Rest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Who has the pool now, and who waits."""

    epoch: int
    began: int = 0
    """The epoch with which those who have it got it of nobody."""
    holders: tuple[AssignmentStatus, ...] = ()
    """In the order in which they got it."""
    queue: tuple[Job, ...] = ()
    """In the order in which they will have it; no holder is among them."""
    left: tuple[Pod, ...] = ()
    """Pods of the last run that have to go before anybody has it."""
    why: str = ""
    """Why the first of the queue does not join; empty where the pool serves one run at a time."""

    @property
    def holder(self) -> AssignmentStatus | None:
        """Who has had it longest."""
        return self.holders[0] if self.holders else None

    def waiting(self) -> list[WaitingStatus]:
        """The first of the queue as the status has them."""
        found = [
            WaitingStatus(job=one.meta.name, since=asked.last_transition_time)
            for one in self.queue[:KEPT_WAITING]
            if (asked := asks(one)) is not None
        ]
        return [one.model_copy(update={"why": self.why}) for one in found[:1]] + found[1:]


def asks(job: Job) -> Condition | None:
    """The condition by which a job asks for its pool, if it does."""
    found = find(job.status.conditions, ASSIGNED)
    asking = found is not None and (found.status, found.reason) == ("False", WAITING)
    return found if asking and _may_have(job) else None


def decide(snapshot: PoolSnapshot, *, now: float) -> Allocation:
    """Who has the pool after this look.

    Args:
        snapshot: what there is; a change of the epoch asks for a live one.
        now: seconds since 1970.
    """
    pool, deployment = snapshot.pool, snapshot.deployment
    status = pool.status
    left = tuple(pod for pod in snapshot.pods if lingers(pod, now))
    queue = tuple(one for one in _queue(snapshot.jobs, pool) if not pool.serves(one))
    epoch, began = status.assignment_epoch, status.assignment_began
    if deployment.epoch > epoch:  # the status was lost, e.g. with a backup
        return Allocation(epoch=deployment.epoch + 1, queue=queue, left=left)
    there, kept = pool.holders, _kept(snapshot, others_wait=bool(queue), now=now)
    if kept != there:
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
        holders=(*kept, *(_assigned(one, now=now) for one in new)),
        queue=queue[len(new) :],
    )


def _kept(snapshot: PoolSnapshot, *, others_wait: bool, now: float) -> tuple[AssignmentStatus, ...]:
    """Those who have the pool and go on having it.

    One that does not go with those before it any more, for it was edited, asks anew.
    """
    pool, jobs = snapshot.pool, {one.meta.uid: one for one in snapshot.served}
    kept: list[AssignmentStatus] = []
    for holder in pool.holders:
        job, before = jobs.get(holder.uid), [jobs[each.uid] for each in kept]
        if job is None or not _keeps(job, pool, others_wait=others_wait, now=now):
            continue
        if not engine_sharing.conflict(job, before):
            kept.append(holder)
    return tuple(kept)


def _next(snapshot: PoolSnapshot, queue: Sequence[Job], *, now: float) -> tuple[Job, ...]:
    """Those who get the pool now, beside those who have it or of nobody."""
    pool, served = snapshot.pool, snapshot.served
    if pool.spec is None or pool.meta.deleted_at is not None:
        return ()
    if not served and not empty(snapshot, now=now):
        return ()
    return engine_sharing.joining(queue, served, pool.spec)


def _obstacle(snapshot: PoolSnapshot, queue: Sequence[Job]) -> str:
    """Why the first of the queue does not get the pool beside those that have it."""
    spec = snapshot.pool.spec
    if spec is None or spec.max_runs == 1 or not queue:
        return ""
    return engine_sharing.obstacle(queue[0], snapshot.served, spec)


def _assigned(job: Job, *, now: float) -> AssignmentStatus:
    return AssignmentStatus(
        job=job.meta.name, uid=job.meta.uid, run=job.meta.run, since=format_time(now)
    )


def empty(snapshot: PoolSnapshot, *, now: float) -> bool:
    """Whether no pod of the pool is left and none can come.

    A pod that is a minute over its grace is on a node that does not answer: nobody waits for it.
    """
    deployment = snapshot.deployment
    at_zero = deployment.observed and deployment.declared == deployment.replicas == 0
    stopped = at_zero or not deployment.exists
    return stopped and not any(lingers(pod, now) for pod in snapshot.pods)


def step(snapshot: PoolSnapshot, *, now: float) -> Step:
    """What is to be done with the pool's Deployment, as its status says now.

    ``Create`` makes it without pods, ``Empty`` takes it to 0, ``Serve`` makes it the holders'.
    """
    status, deployment = snapshot.pool.status, snapshot.deployment
    behind = deployment.epoch < status.assignment_epoch
    # Of those who had it before nobody is left, so that their pods have to go first.
    began = status.assignment_began
    handed_on = behind and (not began or deployment.epoch < began)
    if deployment.epoch > status.assignment_epoch:
        return "Rest"  # somebody who knows more has written it
    if status.assignment is None:
        return "Empty" if deployment.exists and (deployment.declared or behind) else "Rest"
    if not deployment.exists:
        return "Create"
    if handed_on and not empty(snapshot, now=now):
        return "Empty" if deployment.declared else "Rest"
    return "Serve"


def in_use(snapshot: PoolSnapshot, allocation: Allocation) -> bool:
    """Whether the pool must not go: a run has it, or is about to."""
    coming = bool(allocation.queue) and snapshot.pool.meta.deleted_at is None
    return allocation.holder is not None or snapshot.deployment.declared > 0 or coming


def _queue(jobs: Sequence[Job], pool: Pool) -> list[Job]:
    """Jobs that ask for the pool, who asked first first."""

    def place(job: Job) -> tuple[float, float, str]:
        asked = asks(job)
        since = parse_time(asked.last_transition_time) if asked is not None else None
        return since or 0.0, job.meta.created_at, job.meta.uid

    name = pool.meta.name
    there = [one for one in jobs if pool_ref.of(one.spec) == name and asks(one) is not None]
    return sorted(there, key=place)


def _may_have(job: Job) -> bool:
    gone = job.meta.deleted_at is not None or job.finished
    return not gone and not job.suspended


def _keeps(job: Job, pool: Pool, *, others_wait: bool, now: float) -> bool:
    """Whether the holder keeps the pool."""
    if not _may_have(job):
        return False
    if job.spec is not None and pool_ref.of(job.spec) != pool.meta.name:
        return False
    if not others_wait or not start_gate.applies(job.status):
        return True
    stalled = find(job.status.conditions, "Stalled")
    if stalled is None or not is_true(job.status.conditions, "Stalled"):
        return True
    since = parse_time(stalled.last_transition_time)
    return since is None or now - since <= STALLED_SECONDS
