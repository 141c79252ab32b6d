"""A job's place in its queue: its Workload (Kueue, kueue.x-k8s.io/v1beta2), parsed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import MOST_SAMPLERS
from rl_operator.kube import kinds, names
from rl_operator.kube.conditions import ConditionUpdate, Truth
from rl_operator.kube.metadata import Child, Meta, Raw
from rl_operator.kube.redact import redacted
from rl_operator.kube.timestamps import parse_time
from rl_operator.render.workload import TRAINER_SET, group_set, missing_demand
from rl_operator.state.snapshot import JobSnapshot

SHOWN = ("QuotaReserved", "Admitted", "Evicted")
"""Conditions of a Workload that its job shows with the queue's own reason and message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The part of an admission that is about one pod set."""

    count: int
    flavors: tuple[str, ...] = ()
    topology: bool = False
    """The queue assigns a node to each pod, which is not supported."""
    node_selector: Mapping[str, str]
    """This and the fields below come from the admission checks."""
    tolerations: tuple[Raw, ...] = ()
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A job's place in a queue."""

    meta: Meta
    child: Child
    active: bool
    """False: an administrator has taken it out of the queue."""
    reserved: bool
    admitted: bool
    evicted: bool
    finished: bool
    conditions: Mapping[str, Raw]
    """By type."""
    assignments: Mapping[str, Assignment]
    """By pod set; empty without an admission."""
    checks: tuple[str, ...] = ()
    """State and message of each admission check that is not ready."""

    def reason_of(self, kind: str) -> tuple[str, str]:
        """Reason and message of a condition; empty where there is none."""
        condition = self.conditions.get(kind, {})
        return condition.get("reason", ""), redacted(condition.get("message", "")).strip()

    def since(self, kind: str) -> float | None:
        """When a condition's status changed last, seconds since 1970."""
        return parse_time(self.conditions.get(kind, {}).get("lastTransitionTime"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why a job may have no pods."""

    reason: str
    message: str
    renew: bool = False
    """The Workload cannot be used: another one replaces it once the pods have gone."""


def of(snapshot: JobSnapshot) -> Workload | None:
    """The Workload of a job; None also for that of an earlier job of the same name."""
    child = snapshot.children.get((kinds.WORKLOAD.name, names.workload(snapshot.key.name)))
    if child is None or child.meta.owner_uid != snapshot.job.meta.uid:
        return None
    return parse(child)


def parse(child: Child) -> Workload:
    """Read a Workload."""
    status = child.raw.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}

    def true(kind: str) -> bool:
        return bool(conditions.get(kind, {}).get("status") == "True")

    granted = status.get("admission")
    checks = status.get("admissionChecks", [])
    reserved = granted is not None and true("QuotaReserved")
    return Workload(
        meta=child.meta,
        child=child,
        active=child.raw["spec"].get("active", True),
        reserved=reserved,
        admitted=reserved and true("Admitted"),
        evicted=true("Evicted"),
        finished=true("Finished"),
        conditions=conditions,
        assignments=_assignments(child.raw, checks) if granted is not None else {},
        checks=tuple(
            redacted(f"{check['name']} {check['state']}: {check.get('message', '')}".strip())
            for check in checks
            if check.get("state") != "Ready"
        ),
    )


def _assignments(raw: Raw, checks: Iterable[Raw]) -> dict[str, Assignment]:
    asked = {pod_set["name"]: pod_set["count"] for pod_set in raw["spec"]["podSets"]}
    updates = [
        pod_set_update for check in checks for pod_set_update in check.get("podSetUpdates", [])
    ]
    assignments = {}
    for pod_set_assignment in raw["status"]["admission"].get("podSetAssignments", []):
        mine = [each for each in updates if each["name"] == pod_set_assignment["name"]]
        assignments[pod_set_assignment["name"]] = Assignment(
            count=pod_set_assignment.get("count", asked.get(pod_set_assignment["name"], 0)),
            flavors=tuple(sorted(set(pod_set_assignment.get("flavors", {}).values()))),
            topology="topologyAssignment" in pod_set_assignment
            or "delayedTopologyRequest" in pod_set_assignment,
            node_selector=_joined(mine, "nodeSelector"),
            tolerations=tuple(each for update in mine for each in update.get("tolerations", [])),
            labels=_joined(mine, "labels"),
            annotations=_joined(mine, "annotations"),
        )
    return assignments


def _joined(updates: Iterable[Raw], key: str) -> dict[str, str]:
    return {name: value for update in updates for name, value in update.get(key, {}).items()}


def hold(workload: Workload | None, demand: Mapping[str, Any] | None, queue: str) -> Hold | None:
    """Why a job may have no pods now; None: it may.

    Args:
        workload: of the job.
        demand: the Workload as its spec would have it now; None: that cannot be said.
        queue: name of the LocalQueue.
    """
    if workload is None:
        message = f"The job's Workload for LocalQueue {queue} is about to be created."
        return Hold(reason="NotQueued", message=message)
    name = workload.meta.name
    if workload.meta.deleted_at is not None:
        message = f"Workload {name} is being deleted; the job queues again."
        return Hold(reason="WorkloadDeleted", message=message)
    different = missing_demand(workload.child.raw, demand) if demand is not None else ""
    if different:
        message = f"{different} The job queues again with a new Workload."
        return Hold(reason="DemandChanged", message=message, renew=True)
    if workload.finished:
        cause = workload.reason_of("Finished")[1]
        message = f"Workload {name} was marked finished, so that the job queues again: {cause}"
        return Hold(reason="WorkloadFinished", message=message, renew=True)
    if not workload.active:
        message = f"Workload {name} is deactivated. Set its spec.active to true to queue again."
        return Hold(reason="Deactivated", message=message)
    if workload.evicted and workload.reserved:
        reason, message = workload.reason_of("Evicted")
        return Hold(reason=reason or "Evicted", message=message or _silent(workload))
    return None if workload.admitted else _waiting(workload, queue)


def _waiting(workload: Workload, queue: str) -> Hold:
    if workload.reserved:
        checks = "; ".join(workload.checks) or workload.reason_of("Admitted")[1]
        message = f"Quota is reserved; admission checks are not ready. {checks}".strip()
        return Hold(reason="AdmissionChecks", message=message)
    reason, message = workload.reason_of("QuotaReserved")
    return Hold(reason=reason or "Pending", message=message or _pending(queue))


def _pending(queue: str) -> str:
    return (
        f"Kueue has not reported on the Workload yet. Check that LocalQueue {queue} exists and "
        "that Kueue is running."
    )


def _silent(workload: Workload) -> str:
    return f"Kueue gives no message; see Workload {workload.meta.name}."


def conditions(snapshot: JobSnapshot) -> list[ConditionUpdate]:
    """A job's conditions about its queue; none without a queue."""
    basics, workload = snapshot.job.basics, of(snapshot)
    if workload is None and not basics.queued:
        return []
    if workload is None:
        message = "The job's Workload does not exist; the operator creates it after its checks."
        return [ConditionUpdate(kind, "False", "NoWorkload", message) for kind in SHOWN[:2]]
    updates = []
    for kind in SHOWN:
        condition = workload.conditions.get(kind)
        if condition is not None:
            truth: Truth = "True" if condition["status"] == "True" else "False"
            reason, message = workload.reason_of(kind)
            updates.append(ConditionUpdate(kind, truth, reason, message or _silent(workload)))
        elif kind != "Evicted":
            message = _pending(basics.queue_name)
            updates.append(ConditionUpdate(kind, "False", "Pending", message))
    return updates


def sizes(spec: RLJobSpec, workload: Workload | None) -> dict[str, int]:
    """Sampler pods that each group may have: those that were admitted.

    With a ``samplerQuota`` below ``MaxReplicas`` extra samplers run outside the quota: then only
    /scale limits them.
    """
    granted = workload.assignments if workload is not None else {}
    if workload is not None and spec.scheduling.sampler_quota != "MaxReplicas":
        return {sampler.name: MOST_SAMPLERS for sampler in spec.pooled}
    return {
        sampler.name: granted[group_set(sampler.name)].count
        if group_set(sampler.name) in granted
        else 0
        for sampler in spec.pooled
    }


def trainers(workload: Workload) -> int:
    """Number of trainer pods that were admitted."""
    return workload.assignments[TRAINER_SET].count
