"""The status of a SamplerPool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.spec.status import SamplerPoolStatus, ScaleStatus, ServedStatus
from rl_operator.kube.conditions import ConditionUpdate, Stall, Truth, merged
from rl_operator.pools import shared_status
from rl_operator.pools.assignment import Allocation
from rl_operator.render import deployment
from rl_operator.state.pod import first_trouble
from rl_operator.state.progress import NOT_CHECKED, Reading, lag, staleness_bound
from rl_operator.state.snapshot import Job, PoolSnapshot

KEPT_SCALES = 5
SERVED = ("serving", "lagging", "version", "lag")
"""Counters of what pods serve now, which the state store alone can tell."""
LATE, TIMED_OUT = "WeightsCurrent", "TimedOut"
"""Condition and reason by which a pool tells its job that the run is to fail."""
SERVING_UNKNOWN = "What its pods serve is not known meanwhile."


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The pool's size now."""

    replicas: int
    record: ScaleStatus | None = None
    """Of a change that was just made."""
    resource_version: str = ""
    """Of the pool after that change."""
    limited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Pods of no use."""

    replaced: int = 0
    """That were deleted this time."""
    late: str = ""
    """What is the matter with one for which the run is to fail."""


NOTHING_LOST = Lost()


def compute(
    snapshot: PoolSnapshot,
    reading: Reading,
    *,
    stall: Stall | None,
    replicas: int,
    lost: Lost = NOTHING_LOST,
    scaled: Scaled | None = None,
    allocation: Allocation | None = None,
    others: Sequence[Reading] = (),
    now: float,
) -> SamplerPoolStatus:
    """The whole status.

    Args:
        snapshot: what Kubernetes holds.
        reading: what the stores say of the run that the pool serves.
        stall: why the pool cannot be what it declares.
        replicas: pods that there ought to be now.
        lost: pods of no use.
        scaled: what the autoscaler did, where there is one.
        allocation: of a shared pool: who has it.
        others: what the stores say of the runs that it serves beside that one.
        now: seconds since 1970.
    """
    before, meta = snapshot.pool.status, snapshot.pool.meta
    changes = _fields(snapshot, reading, replicas=replicas, shared=allocation is not None)
    changes["replaced"] = before.replaced + lost.replaced
    if allocation is not None:
        changes |= {
            "runs": _of_each(snapshot, [reading, *others]),
            **shared_status.fields(allocation),
        }
    if scaled is not None and scaled.record is not None:
        changes["last_scale"] = [*before.last_scale, scaled.record][-KEPT_SCALES:]
    said = _said(snapshot, stall=stall, replicas=replicas)
    if lost.late:
        said.append(ConditionUpdate(LATE, "False", TIMED_OUT, lost.late))
    if allocation is not None:
        said = shared_status.said(allocation, said, namespace=meta.namespace)
    if scaled is not None:
        said += _limited(scaled, replicas)
    said += _store_away([reading, *others])
    changes["conditions"] = merged(before.conditions, said, generation=meta.generation, now=now)
    return before.model_copy(update=changes)


def trouble(snapshot: PoolSnapshot) -> str:
    """What keeps pods from being made or from running; empty when nothing is known."""
    return snapshot.deployment.stuck or first_trouble(snapshot.pods)


def _fields(
    snapshot: PoolSnapshot, reading: Reading, *, replicas: int, shared: bool
) -> dict[str, object]:
    """What any pool's status says of its pods, but what it remembers."""
    meta, state = snapshot.pool.meta, snapshot.deployment
    found: dict[str, object] = {
        "observed_generation": meta.generation,
        "replicas": state.replicas,
        "ready": state.ready,
        "updated": state.updated,
        "unavailable": max(0, replicas - state.ready),
        "draining": _draining(snapshot, reading),
    }
    if snapshot.job is not None:
        chosen = deployment.selector(meta.name, "" if shared else snapshot.job.meta.run)
        found["selector"] = ",".join(f"{key}={value}" for key, value in sorted(chosen.items()))
    found |= _counters(snapshot, snapshot.job, reading)
    return found


def _limited(scaled: Scaled, replicas: int) -> list[ConditionUpdate]:
    """Why the pool is smaller than it ought to be."""
    if scaled.limited:
        message = "The trainer waits; spec.template.autoscaling.maxReplicas allows no more pods."
        return [ConditionUpdate("ScalingLimited", "True", "AtMaximum", message)]
    if replicas < scaled.replicas:
        message = (
            f"/scale asks for {scaled.replicas} pods; the job's queue has admitted {replicas}. It "
            "is asked for autoscaling.maxReplicas, without one for autoscaling.minReplicas."
        )
        return [ConditionUpdate("ScalingLimited", "True", "QueueAdmitsFewer", message)]
    return []


def _store_away(readings: Sequence[Reading]) -> list[ConditionUpdate]:
    """Why nobody knows what pods serve; nothing where the stores of all runs tell."""
    asked = (reading.store for reading in readings if reading.store != NOT_CHECKED)
    away = next((one for one in asked if one.status != "True"), None)
    if away is None:
        return []
    why = f"{away.message.rstrip('.')}. " if away.message else ""
    return [
        ConditionUpdate("StateStoreReachable", away.status, away.reason, f"{why}{SERVING_UNKNOWN}")
    ]


def _counters(snapshot: PoolSnapshot, job: Job | None, reading: Reading) -> dict[str, object]:
    """What the stores say of the pods of one run, as they answered; None while they do not."""
    if not reading.known:
        gone = all(pod.deleting for pod in snapshot.pods)
        return dict.fromkeys(SERVED, 0 if gone else None)
    serving = serving_of(snapshot, reading)
    step = reading.run.step if reading.run else 0
    bound = staleness_bound(job.spec if job else None)
    policy = reading.run.policy if reading.run else None
    return {
        "target_version": policy.version if policy else 0,
        "lagging": sum(step - one.step > bound for one in serving),
        "serving": sum(step - one.step <= bound for one in serving),
        "version": min((one.version for one in serving), default=0),
        "lag": lag(reading.run, serving),
    }


def _of_each(snapshot: PoolSnapshot, readings: Sequence[Reading]) -> list[ServedStatus]:
    """The counters of each run, where there are several."""
    if not snapshot.beside:
        return []
    before = {run.job: run for run in snapshot.pool.status.runs}
    found = []
    for job, reading in zip(snapshot.served, readings, strict=False):
        name = job.meta.name
        last = before.get(name, ServedStatus(job=name))
        found.append(last.model_copy(update=_counters(snapshot, job, reading)))
    return found


def _draining(snapshot: PoolSnapshot, reading: Reading) -> int:
    told = {sampler.pod for sampler in reading.samplers if sampler.state == SamplerState.DRAINING}
    return sum(pod.live and (pod.deleting or pod.name in told) for pod in snapshot.pods)


def serving_of(snapshot: PoolSnapshot, reading: Reading) -> list[Sampler]:
    """Samplers of a pool that serve a published policy and whose pods are there."""
    pods = {pod.name for pod in snapshot.pods if not pod.deleting}
    return [
        sampler
        for sampler in reading.samplers
        if sampler.state == SamplerState.READY and sampler.version > 0 and sampler.pod in pods
    ]


def _is_suspended(snapshot: PoolSnapshot) -> bool:
    return snapshot.pool.spec is not None and snapshot.pool.spec.suspend


def _said(snapshot: PoolSnapshot, *, stall: Stall | None, replicas: int) -> list[ConditionUpdate]:
    state = snapshot.deployment
    available: Truth = "True" if state.ready else "False"
    said = [ConditionUpdate("Available", available, "PodsReady" if state.ready else "NoPodReady")]
    if _is_suspended(snapshot):
        gone = state.replicas == 0 and not snapshot.pods
        said.append(
            ConditionUpdate("Suspended", "True", "Suspended")
            if gone
            else ConditionUpdate("Suspended", "False", "Stopping", "Pods are ending.")
        )
    if stall is not None:
        return [
            ConditionUpdate("Ready", "False", stall.reason, stall.message),
            ConditionUpdate("Stalled", "True", stall.reason, stall.message),
            *said,
        ]
    if not state.behind and state.ready == state.updated == state.replicas == replicas:
        suspended = snapshot.job is not None and (snapshot.job.suspended or snapshot.held)
        suspended = suspended or _is_suspended(snapshot)
        reason = "AllReady" if replicas else "Suspended" if suspended else "ScaledToZero"
        return [ConditionUpdate("Ready", "True", reason), *said]
    message = f"{state.ready} of {replicas} pods are ready. {trouble(snapshot)}".strip()
    return [
        ConditionUpdate("Ready", "False", "PodsStarting", message),
        ConditionUpdate("Reconciling", "True", "PodsStarting", message),
        *said,
    ]
