"""What a queue says of a job: parsed from its Workload (Kueue, kueue.x-k8s.io/v1beta2)."""

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

TOLD = ("QuotaReserved", "Admitted", "Evicted")
"""Conditions of a Workload that its job shows in the queue's own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What was admitted of one pod set."""

    count: int
    flavors: tuple[str, ...] = ()
    topology: bool = False
    """Pods would have to be placed one by one."""
    node_selector: Mapping[str, str]
    """With the following, of the admission checks."""
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
    """What admission checks that are not ready say."""

    def words(self, kind: str) -> tuple[str, str]:
        """Reason and message of a condition; empty where there is none."""
        found = self.conditions.get(kind, {})
        return found.get("reason", ""), redacted(found.get("message", "")).strip()

    def since(self, kind: str) -> float | None:
        """When a condition turned last, seconds since 1970."""
        return parse_time(self.conditions.get(kind, {}).get("lastTransitionTime"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why a job may have no pods."""

    reason: str
    message: str
    renew: bool = False
    """The Workload is of no use: another one takes its place once the pods have gone."""


def of(snapshot: JobSnapshot) -> Workload | None:
    """The Workload of a job; one that an earlier job of its name had is not."""
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
    found = {}
    for pod_set_assignment in raw["status"]["admission"].get("podSetAssignments", []):
        mine = [each for each in updates if each["name"] == pod_set_assignment["name"]]
        found[pod_set_assignment["name"]] = Assignment(
            count=pod_set_assignment.get("count", asked.get(pod_set_assignment["name"], 0)),
            flavors=tuple(sorted(set(pod_set_assignment.get("flavors", {}).values()))),
            topology="topologyAssignment" in pod_set_assignment
            or "delayedTopologyRequest" in pod_set_assignment,
            node_selector=_joined(mine, "nodeSelector"),
            tolerations=tuple(each for update in mine for each in update.get("tolerations", [])),
            labels=_joined(mine, "labels"),
            annotations=_joined(mine, "annotations"),
        )
    return found


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
        return Hold(reason="NotQueued", message=f"The job's Workload for queue {queue} comes next.")
    if workload.meta.deleted_at is not None:
        return Hold(reason="WorkloadDeleted", message=f"Workload {workload.meta.name} is deleted.")
    different = missing_demand(workload.child.raw, demand) if demand is not None else ""
    if different:
        return Hold(reason="DemandChanged", message=different, renew=True)
    if workload.finished:
        _, message = workload.words("Finished")
        told = f"Workload {workload.meta.name} was declared finished: {message}"
        return Hold(reason="WorkloadFinished", message=told, renew=True)
    if not workload.active:
        told = f"spec.active of Workload {workload.meta.name} is false: set it to true to go on."
        return Hold(reason="Deactivated", message=told)
    if workload.evicted and workload.reserved:
        reason, message = workload.words("Evicted")
        return Hold(reason=reason or "Evicted", message=message)
    return None if workload.admitted else _waiting(workload, queue)


def _waiting(workload: Workload, queue: str) -> Hold:
    if workload.reserved:
        told = "; ".join(workload.checks) or workload.words("Admitted")[1]
        return Hold(reason="AdmissionChecks", message=f"Quota is reserved. {told}".strip())
    reason, message = workload.words("QuotaReserved")
    silent = f"Kueue has said nothing of it yet. Is there a LocalQueue {queue}?"
    return Hold(reason=reason or "Pending", message=message or silent)


def said(snapshot: JobSnapshot) -> list[ConditionUpdate]:
    """A job's conditions about its queue."""
    queued, workload = snapshot.job.basics.queued, of(snapshot)
    if workload is None and not queued:
        return []
    if workload is None:
        return [ConditionUpdate(kind, "False", "NoWorkload") for kind in TOLD[:2]]
    found = []
    for kind in TOLD:
        there = workload.conditions.get(kind)
        if there is not None:
            truth: Truth = "True" if there["status"] == "True" else "False"
            found.append(ConditionUpdate(kind, truth, *workload.words(kind)))
        elif kind != "Evicted":
            found.append(ConditionUpdate(kind, "False", "Pending"))
    return found


def sizes(spec: RLJobSpec, workload: Workload | None) -> dict[str, int]:
    """Sampler pods that each group may have: those that were admitted.

    With a ``samplerQuota`` below the most, others may come unasked: as many as /scale allows.
    """
    granted = workload.assignments if workload is not None else {}
    if workload is not None and spec.scheduling.sampler_quota != "MaxReplicas":
        return {sampler.name: MOST_SAMPLERS for sampler in spec.samplers}
    return {
        sampler.name: granted[group_set(sampler.name)].count
        if group_set(sampler.name) in granted
        else 0
        for sampler in spec.samplers
    }


def trainers(workload: Workload) -> int:
    """Trainer pods that were admitted."""
    return workload.assignments[TRAINER_SET].count
