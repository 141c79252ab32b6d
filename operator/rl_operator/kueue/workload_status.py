"""The status of a Workload that we write: pods are ready, have gone, or the job is over.

Kueue leaves these conditions to the controller that runs a Workload's pods.
"""

from __future__ import annotations

from typing import Any

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube.conditions import find, is_true
from rl_operator.kube.metadata import Raw
from rl_operator.kube.timestamps import format_time
from rl_operator.kueue.admission import Workload
from rl_operator.state import attempt_records
from rl_operator.state.snapshot import JobSnapshot

Manifest = dict[str, Any]

QUEUED_AGAIN = ("Preempted", "NodeFailures")
"""Evictions after which a Workload queues at once; after others Kueue decides when."""


def started(
    snapshot: JobSnapshot, spec: RLJobSpec, workload: Workload, *, now: float
) -> Manifest | None:
    """``PodsReady`` once all pods of a start are; Kueue may set a deadline. None: no change."""
    if _is_true(workload, "PodsReady") or not _all_ready(snapshot, spec):
        return None
    message = "The trainer's pods and the minimum of samplers are ready."
    return _change(workload, [("PodsReady", True, "Started", message)], now=now)


def released(workload: Workload, *, now: float) -> Manifest | None:
    """The end of an eviction: the quota is released. None: there is none to release."""
    if not workload.evicted or not workload.reserved:
        return None
    reason, message = workload.reason_of("Evicted")
    again = reason in QUEUED_AGAIN
    unready = "UnsatisfiedChecks" if workload.checks else ""
    updates = [
        ("Requeued", again, reason or "Evicted", message),
        ("QuotaReserved", False, "Pending", message),
        ("Admitted", False, f"NoReservation{unready}", "The workload has no reservation"),
    ]
    if "PodsReady" in workload.conditions:
        message = "Not all pods are ready or succeeded"
        updates.append(("PodsReady", False, "WaitForStart", message))
    change = _change(workload, updates, now=now)
    change["status"]["admission"] = None
    if workload.admitted:
        before = workload.child.raw["status"].get("accumulatedPastExecutionTimeSeconds", 0)
        ran = max(0.0, now - (workload.since("Admitted") or now))
        change["status"]["accumulatedPastExecutionTimeSeconds"] = before + round(ran)
    return change


def ended(snapshot: JobSnapshot, workload: Workload, *, now: float) -> Manifest | None:
    """``Finished`` once a job that is over has no pods. None: not yet, or already written.

    Samplers that stay may be absent for a moment, as while one is replaced.
    """
    if workload.finished or snapshot.samplers_stay:
        return None
    if any(pod.remains for pod in snapshot.all_pods):
        return None
    conditions = snapshot.job.status.conditions
    succeeded = is_true(conditions, "Complete")
    end = find(conditions, "Complete" if succeeded else "Failed")
    message = end.message if end is not None else ""
    reason = "Succeeded" if succeeded else "Failed"
    return _change(workload, [("Finished", True, reason, message)], now=now)


def _all_ready(snapshot: JobSnapshot, spec: RLJobSpec) -> bool:
    status = snapshot.job.status
    if status.attempt == 0 or attempt_records.ended(status):
        return False
    trainers = sum(trainer_pod.ready for trainer_pod in snapshot.trainer_pods(status.attempt))
    if trainers < attempt_records.replicas(spec.trainer, status):
        return False
    ready = [
        sampler_pod.pool
        for sampler_pod in snapshot.sampler_pods()
        if sampler_pod.ready and not sampler_pod.deleting
    ]
    wanted = {
        pool.meta.name: min(pool.spec.size, pool.spec.template.autoscaling.min_replicas)
        for pool in snapshot.pools
        if pool.spec is not None
    }
    return all(ready.count(name) >= count for name, count in wanted.items())


def _is_true(workload: Workload, kind: str) -> bool:
    return bool(workload.conditions.get(kind, {}).get("status") == "True")


def _change(
    workload: Workload, updates: list[tuple[str, bool, str, str]], *, now: float
) -> Manifest:
    """The Workload's conditions with updates by type, at the version that was observed."""
    changed: dict[str, Raw] = dict(workload.conditions)
    for kind, true, reason, message in updates:
        status, before = str(true), changed.get(kind)
        same = before is not None and before["status"] == status
        since = before["lastTransitionTime"] if before is not None and same else format_time(now)
        changed[kind] = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message[:1024],
            "lastTransitionTime": since,
            "observedGeneration": workload.meta.generation,
        }
    meta = workload.meta
    metadata = {
        "name": meta.name,
        "namespace": meta.namespace,
        "resourceVersion": meta.resource_version,
    }
    return {"metadata": metadata, "status": {"conditions": list(changed.values())}}
