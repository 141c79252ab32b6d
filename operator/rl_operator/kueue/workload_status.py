"""What we tell a job's queue: that its pods run, that they have gone, that the job is over.

Kueue leaves these conditions to whoever runs a Workload's pods; its own jobs write the same ones.
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
"""Reasons of an eviction after which a Workload is queued at once; after others Kueue says when."""


def started(
    snapshot: JobSnapshot, spec: RLJobSpec, workload: Workload, *, now: float
) -> Manifest | None:
    """``PodsReady`` once all pods of a start are: Kueue may put a deadline to it. None: no news."""
    if _is_true(workload, "PodsReady") or not _all_ready(snapshot, spec):
        return None
    message = "The trainer's pods and the least number of samplers are ready."
    return _change(workload, [("PodsReady", True, "Started", message)], now=now)


def released(workload: Workload, *, now: float) -> Manifest | None:
    """An eviction is done: the quota may go to others. None: there is none to give back."""
    if not workload.evicted or not workload.reserved:
        return None
    reason, message = workload.words("Evicted")
    again = reason in QUEUED_AGAIN
    unready = "UnsatisfiedChecks" if workload.checks else ""
    said = [
        ("Requeued", again, reason or "Evicted", message),
        ("QuotaReserved", False, "Pending", message),
        ("Admitted", False, f"NoReservation{unready}", "The workload has no reservation"),
    ]
    if "PodsReady" in workload.conditions:
        message = "Not all pods are ready or succeeded"
        said.append(("PodsReady", False, "WaitForStart", message))
    found = _change(workload, said, now=now)
    found["status"]["admission"] = None
    if workload.admitted:
        before = workload.child.raw["status"].get("accumulatedPastExecutionTimeSeconds", 0)
        ran = max(0.0, now - (workload.since("Admitted") or now))
        found["status"]["accumulatedPastExecutionTimeSeconds"] = before + round(ran)
    return found


def ended(snapshot: JobSnapshot, workload: Workload, *, now: float) -> Manifest | None:
    """``Finished`` once a job that is over has no pods. None: not yet, or it is known."""
    if workload.finished or any(pod.remains for pod in snapshot.pods):
        return None
    conditions = snapshot.job.status.conditions
    succeeded = is_true(conditions, "Complete")
    words = find(conditions, "Complete" if succeeded else "Failed")
    message = words.message if words is not None else ""
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


def _change(workload: Workload, said: list[tuple[str, bool, str, str]], *, now: float) -> Manifest:
    """The Workload's conditions with some of them said anew, on the version that was seen."""
    changed: dict[str, Raw] = dict(workload.conditions)
    for kind, true, reason, message in said:
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
