"""Computes the status of a SamplerPool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.documents.sampler import Sampler, SamplerState
from rl_contracts.spec.pool_status import SamplerPoolStatus, ScaleStatus, ServedStatus
from rl_operator.kube.conditions import ConditionUpdate, Stall, merged
from rl_operator.pools import shared_status
from rl_operator.pools.assignment import Allocation
from rl_operator.pools.runs import unserved
from rl_operator.render.samplers import deployment
from rl_operator.state.pod import first_trouble
from rl_operator.state.progress import NOT_CHECKED, Reading, lag, staleness_bound
from rl_operator.state.snapshot import NOT_CREATED, Job, PoolSnapshot

KEPT_SCALES = 5
SERVED = ("serving", "lagging", "version", "lag")
"""Counters of what pods serve now; only the state store knows them."""
LATE, TIMED_OUT = "WeightsCurrent", "TimedOut"
"""Condition and reason by which a pool reports that its job's run must fail."""
SERVING_UNKNOWN = "Which policies the pods serve is unknown until it answers."


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """The pool's size after autoscaling."""

    replicas: int
    record: ScaleStatus | None = None
    """Of a change that was made in this reconcile."""
    resource_version: str = ""
    """Of the pool after that change."""
    limited: bool = False
    """``maxReplicas`` keeps the pool smaller than advised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Pods that are stale or silent."""

    replaced: int = 0
    """Number of pods deleted in this reconcile."""
    late: str = ""
    """Why a pod makes the run fail; empty when none does."""


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
        stall: why the pool cannot be reconciled.
        replicas: pods that the pool should have now.
        lost: pods that are stale or silent.
        scaled: result of autoscaling; None where the pool is not scaled.
        allocation: of a shared pool: which jobs have it.
        others: readings of the other runs that it serves.
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
    waits = _wait_for_trainers(snapshot, [reading, *others])
    updates = _conditions(snapshot, stall=stall, replicas=replicas, waits=waits)
    if lost.late:
        updates.append(ConditionUpdate(LATE, "False", TIMED_OUT, lost.late))
    if allocation is not None:
        updates = shared_status.conditions(allocation, updates, namespace=meta.namespace)
    if scaled is not None:
        updates += _limited(scaled, replicas)
    updates += _store_away([reading, *others])
    changes["conditions"] = merged(before.conditions, updates, generation=meta.generation, now=now)
    return before.model_copy(update=changes)


def trouble(snapshot: PoolSnapshot, *, waits: bool = False) -> str:
    """What keeps pods from being created or from running; empty when nothing is known.

    While they wait for a policy (``waits``), a rollout is past its deadline without a fault.
    """
    state = snapshot.deployment
    return state.uncreated or first_trouble(snapshot.pods) or ("" if waits else state.stuck)


def _wait_for_trainers(snapshot: PoolSnapshot, readings: Sequence[Reading]) -> bool:
    """Whether all pods have registered, and only a first policy is missing."""
    registered = {sampler.pod for reading in readings for sampler in reading.samplers}
    pods = {pod.name for pod in snapshot.pods if not pod.deleting}
    return unserved(readings) and bool(pods) and pods <= registered


def _fields(
    snapshot: PoolSnapshot, reading: Reading, *, replicas: int, shared: bool
) -> dict[str, object]:
    """The fields of a status that each reconcile computes again: counts of pods."""
    meta, state = snapshot.pool.meta, snapshot.deployment
    fields: dict[str, object] = {
        "observed_generation": meta.generation,
        "replicas": state.replicas,
        "ready": state.ready,
        "updated": state.updated,
        "unavailable": max(0, replicas - state.ready),
        "draining": _draining(snapshot, reading),
    }
    if snapshot.job is not None:
        chosen = deployment.selector(meta.name, "" if shared else snapshot.job.meta.run)
        fields["selector"] = ",".join(f"{key}={value}" for key, value in sorted(chosen.items()))
    return fields | _counters(snapshot, snapshot.job, reading)


def _limited(scaled: Scaled, replicas: int) -> list[ConditionUpdate]:
    """Why the pool is smaller than it should be."""
    if scaled.limited:
        message = (
            "The trainer waits for samplers, and spec.template.autoscaling.maxReplicas allows no "
            "more pods. Raise it in the group's template if the cluster has room."
        )
        return [ConditionUpdate("ScalingLimited", "True", "AtMaximum", message)]
    if replicas < scaled.replicas:
        message = (
            f"spec.replicas = {scaled.replicas}: The job's queue has admitted {replicas} pods. It "
            "reserves autoscaling.maxReplicas, or minReplicas if that is unset: raise it there."
        )
        return [ConditionUpdate("ScalingLimited", "True", "QueueAdmitsFewer", message)]
    return []


def _store_away(readings: Sequence[Reading]) -> list[ConditionUpdate]:
    """That a state store is unreachable; nothing where those of all runs answer."""
    asked = (reading.store for reading in readings if reading.store != NOT_CHECKED)
    away = next((store for store in asked if store.status != "True"), None)
    if away is None:
        return []
    why = f"{away.message.rstrip('.')}. " if away.message else ""
    return [
        ConditionUpdate("StateStoreReachable", away.status, away.reason, f"{why}{SERVING_UNKNOWN}")
    ]


def _counters(snapshot: PoolSnapshot, job: Job | None, reading: Reading) -> dict[str, object]:
    """Counters of the pods of one run; None while the state store does not answer."""
    if not reading.known:
        gone = all(pod.deleting for pod in snapshot.pods)
        return dict.fromkeys(SERVED, 0 if gone else None)
    serving = serving_of(snapshot, reading)
    step = reading.run.step if reading.run else 0
    bound = staleness_bound(job.spec if job else None)
    policy = reading.run.policy if reading.run else None
    return {
        "target_version": policy.version if policy else 0,
        "lagging": sum(step - sampler.step > bound for sampler in serving),
        "serving": sum(step - sampler.step <= bound for sampler in serving),
        "version": min((sampler.version for sampler in serving), default=0),
        "lag": lag(reading.run, serving),
    }


def _of_each(snapshot: PoolSnapshot, readings: Sequence[Reading]) -> list[ServedStatus]:
    """The counters of each run, where a pool serves several."""
    if not snapshot.beside:
        return []
    before = {run.job: run for run in snapshot.pool.status.runs}
    runs = []
    for job, reading in zip(snapshot.served, readings, strict=False):
        name = job.meta.name
        last = before.get(name, ServedStatus(job=name))
        runs.append(last.model_copy(update=_counters(snapshot, job, reading)))
    return runs


def _draining(snapshot: PoolSnapshot, reading: Reading) -> int:
    draining = {
        sampler.pod for sampler in reading.samplers if sampler.state == SamplerState.DRAINING
    }
    return sum(pod.live and (pod.deleting or pod.name in draining) for pod in snapshot.pods)


def serving_of(snapshot: PoolSnapshot, reading: Reading) -> list[Sampler]:
    """Samplers of a pool that serve a published policy and whose pods exist."""
    pods = {pod.name for pod in snapshot.pods if not pod.deleting}
    return [
        sampler
        for sampler in reading.samplers
        if sampler.state == SamplerState.READY and sampler.version > 0 and sampler.pod in pods
    ]


def _is_suspended(snapshot: PoolSnapshot) -> bool:
    return snapshot.pool.spec is not None and snapshot.pool.spec.suspend


def _conditions(
    snapshot: PoolSnapshot, *, stall: Stall | None, replicas: int, waits: bool
) -> list[ConditionUpdate]:
    """Ready and what it rests on; Available and Suspended."""
    parts = [_available(snapshot), *_suspended(snapshot)]
    if stall is not None:
        return [
            ConditionUpdate("Ready", "False", stall.reason, stall.message),
            ConditionUpdate("Stalled", "True", stall.reason, stall.message),
            *parts,
        ]
    state = snapshot.deployment
    if not state.behind and state.ready == state.updated == state.replicas == replicas:
        return [_ready(snapshot, replicas), *parts]
    message = (
        f"{state.ready} of {replicas} pods are ready. {trouble(snapshot, waits=waits)}".strip()
    )
    reason = NOT_CREATED if state.uncreated else "PodsStarting"
    return [
        ConditionUpdate("Ready", "False", reason, message),
        ConditionUpdate("Reconciling", "True", reason, message),
        *parts,
    ]


def _ready(snapshot: PoolSnapshot, replicas: int) -> ConditionUpdate:
    job = snapshot.job
    if replicas:
        reason, message = "AllReady", "All pods are ready."
    elif _is_suspended(snapshot):
        reason, message = "Suspended", "No pod runs. Set spec.suspend to false to start the pods."
    elif job is not None and (job.suspended or snapshot.held):
        reason, message = "Suspended", f"No pod runs while RLJob {job.meta.name} is suspended."
    else:
        reason, message = "ScaledToZero", "The pool is scaled to 0 pods."
    return ConditionUpdate("Ready", "True", reason, message)


def _available(snapshot: PoolSnapshot) -> ConditionUpdate:
    if snapshot.deployment.ready:
        return ConditionUpdate("Available", "True", "PodsReady", "At least one pod is ready.")
    return ConditionUpdate("Available", "False", "NoPodReady", "No pod is ready; see Ready.")


def _suspended(snapshot: PoolSnapshot) -> list[ConditionUpdate]:
    if not _is_suspended(snapshot):
        return []
    if snapshot.deployment.replicas == 0 and not snapshot.pods:
        message = "No pod runs. Set spec.suspend to false to start the pods."
        return [ConditionUpdate("Suspended", "True", "Suspended", message)]
    return [ConditionUpdate("Suspended", "False", "Stopping", "The pods are terminating.")]
