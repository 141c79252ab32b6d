"""The condition PoolAssigned of a job that names a shared pool: it asks for it, or has it."""

from __future__ import annotations

from rl_contracts.errors import Refusal
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.status import RLJobStatus
from rl_operator.kube.conditions import ConditionUpdate, Stall, find
from rl_operator.kube.timestamps import parse_time
from rl_operator.pools.assignment import ASSIGNED, WAITING
from rl_operator.state import attempt_records, pool_ref
from rl_operator.state.snapshot import JobSnapshot, Pool
from rl_operator.status.status_input import StatusInput

NOT_FOUND = "PoolNotFound"


def lacks_pool(snapshot: JobSnapshot) -> bool:
    """Whether the job names a shared pool that does not serve it now."""
    pool = snapshot.shared
    named = bool(pool_ref.of(snapshot.job.spec))
    return named and (pool is None or not pool.serves(snapshot.job))


def conditions(status_input: StatusInput, after: RLJobStatus) -> list[ConditionUpdate]:
    """PoolAssigned: how the job asks for its pool, or that it has it; absent otherwise."""
    snapshot, job = status_input.snapshot, status_input.snapshot.job
    name = pool_ref.of(job.spec)
    ends = attempt_records.is_over(after) or job.suspended or job.meta.deleted_at is not None
    if not name or ends:
        return []
    pool = snapshot.shared
    if pool is None:
        return [ConditionUpdate(ASSIGNED, "False", NOT_FOUND, str(_missing(snapshot)))]
    if not lacks_pool(snapshot):
        return [ConditionUpdate(ASSIGNED, "True", "Assigned", _describe_share(pool, snapshot))]
    asked = find(job.status.conditions, ASSIGNED) is not None
    if status_input.stall is not None or (status_input.checking and not asked):
        return []  # a job that could not use the pool does not ask for it
    return [ConditionUpdate(ASSIGNED, "False", WAITING, _describe_wait(pool, snapshot))]


def waiting(status_input: StatusInput) -> tuple[str, str] | None:
    """Reason and message while the job has no pool and continues once it has it."""
    snapshot = status_input.snapshot
    if not lacks_pool(snapshot):
        return None
    if snapshot.shared is None:
        return NOT_FOUND, str(_missing(snapshot))
    return WAITING, _describe_wait(snapshot.shared, snapshot)


def stall(snapshot: JobSnapshot, spec: RLJobSpec, *, now: float) -> Stall | None:
    """The stall of a job whose pool has been missing for ``pendingDeadlineSeconds``."""
    condition = find(snapshot.job.status.conditions, ASSIGNED)
    if snapshot.shared is not None or condition is None or condition.reason != NOT_FOUND:
        return None
    since = parse_time(condition.last_transition_time)
    limit = spec.lifecycle.pending_deadline_seconds
    if since is None or now - since <= limit:
        return None
    message = f"{condition.message} spec.lifecycle.pendingDeadlineSeconds = {limit} have passed."
    return Stall(reason=NOT_FOUND, message=message)


def _missing(snapshot: JobSnapshot) -> Refusal:
    return Refusal(
        field=pool_ref.path(snapshot.job.spec),
        value=pool_ref.of(snapshot.job.spec),
        reason=NOT_FOUND,
        message=f"Namespace {snapshot.key.namespace} has no SamplerPool of this name.",
        remedy="Create it, or give the group a template.",
    )


def _describe_share(pool: Pool, snapshot: JobSnapshot) -> str:
    """Since when the job has the pool, and which others have it."""
    own = pool.given(snapshot.job)
    others = [holder.job for holder in pool.holders if holder != own]
    beside = f", beside RLJob {', '.join(others)}" if others else ""
    since = own.since if own is not None else ""
    return f"SamplerPool {pool.meta.name} serves this run since {since}{beside}."


def _describe_wait(pool: Pool, snapshot: JobSnapshot) -> str:
    """Who has the pool since when, and how many jobs come before this one."""
    name, status = pool.meta.name, pool.status
    if pool.meta.deleted_at is not None:
        return f"SamplerPool {name} is being deleted. Create it again, or name another one."
    holders = " and ".join(f"RLJob {holder.job} since {holder.since}" for holder in pool.holders)
    state = f"serves {holders}" if holders else "is free and about to be assigned"
    position, obstacle = "", ""
    for index, entry in enumerate(status.waiting):
        if entry.job == snapshot.key.name:
            position = f" This job is number {index + 1} of {status.waiting_jobs} that wait."
            obstacle = f" It waits until they release it: {entry.why}." if entry.why else ""
    stall = f" {pool.stall}" if pool.stall else ""
    return f"SamplerPool {name} {state}.{position}{obstacle}{stall}"
