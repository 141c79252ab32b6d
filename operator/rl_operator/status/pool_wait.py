"""What a job says while it asks for a shared pool, and once it has it."""

from __future__ import annotations

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


def since(snapshot: JobSnapshot) -> float | None:
    """When the job got its shared pool, seconds since 1970; None where it has none."""
    pool = snapshot.shared
    mine = pool.given(snapshot.job) if pool is not None else None
    return None if mine is None or lacks_pool(snapshot) else parse_time(mine.since)


def said(status_input: StatusInput, after: RLJobStatus) -> list[ConditionUpdate]:
    """The condition by which the job asks for its pool, or says that it has it."""
    snapshot = status_input.snapshot
    name = pool_ref.of(snapshot.job.spec)
    job = snapshot.job
    ends = attempt_records.is_over(after) or job.suspended or job.meta.deleted_at is not None
    if not name or ends:
        return []
    pool = snapshot.shared
    if pool is None:
        return [ConditionUpdate(ASSIGNED, "False", NOT_FOUND, _missing(snapshot, name))]
    if not lacks_pool(snapshot):
        mine = pool.given(snapshot.job)
        at = mine.since if mine is not None else ""
        others = [holder.job for holder in pool.holders if holder != mine]
        beside = f", beside RLJob {', '.join(others)}" if others else ""
        message = f"SamplerPool {name} is this run's since {at}{beside}."
        return [ConditionUpdate(ASSIGNED, "True", "Assigned", message)]
    asked = find(snapshot.job.status.conditions, ASSIGNED) is not None
    if status_input.stall is not None or (status_input.checking and not asked):
        return []  # what could not use it does not ask for it
    return [ConditionUpdate(ASSIGNED, "False", WAITING, _turn(pool, snapshot))]


def waiting(status_input: StatusInput) -> tuple[str, str] | None:
    """Reason and message while the job has no pool and goes on once it has it."""
    snapshot = status_input.snapshot
    if not lacks_pool(snapshot):
        return None
    name = pool_ref.of(snapshot.job.spec)
    if snapshot.shared is None:
        return NOT_FOUND, _missing(snapshot, name)
    return WAITING, _turn(snapshot.shared, snapshot)


def stall(snapshot: JobSnapshot, spec: RLJobSpec, *, now: float) -> Stall | None:
    """Why a job whose pool is not there should be looked at by somebody."""
    found = find(snapshot.job.status.conditions, ASSIGNED)
    if snapshot.shared is not None or found is None or found.reason != NOT_FOUND:
        return None
    began, limit = parse_time(found.last_transition_time), spec.lifecycle.pending_deadline_seconds
    if began is None or now - began <= limit:
        return None
    words = f"{found.message} It was waited for as long as spec.lifecycle.pendingDeadlineSeconds"
    return Stall(reason=NOT_FOUND, message=f"{words} = {limit} allow.")


def _missing(snapshot: JobSnapshot, name: str) -> str:
    namespace = snapshot.key.namespace
    return (
        f"Namespace {namespace} has no SamplerPool {name}. Make it, or give the group a template."
    )


def _turn(pool: Pool, snapshot: JobSnapshot) -> str:
    """Who has the pool since when, and how many come before this job."""
    status, name = pool.status, pool.meta.name
    holders = pool.holders
    if pool.meta.deleted_at is not None:
        return f"SamplerPool {name} is being deleted."
    what = (
        "serves " + " and ".join(f"RLJob {holder.job} since {holder.since}" for holder in holders)
        if holders
        else "is about to be given away"
    )
    order = [one.job for one in status.waiting]
    mine = snapshot.key.name
    place = f" This job is number {order.index(mine) + 1}" if mine in order else ""
    of_all = f"{place} of {status.waiting_jobs} that wait." if place else ""
    why = next((one.why for one in status.waiting if one.job == mine and one.why), "")
    alone = f" It waits until they have given it back: {why}." if why else ""
    return f"SamplerPool {name} {what}.{of_all}{alone}"
