"""Renders a job's Workload, the request to its queue (Kueue, kueue.x-k8s.io/v1beta2).

One pod set for the trainer and one for each group of samplers: admitted together or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_contracts.spec.quantities import amount
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.scheduling import SamplerQuota
from rl_contracts.spec.workers import SamplerGroup
from rl_operator.kube import kinds, names
from rl_operator.kube.kinds import Kind
from rl_operator.kube.metadata import Meta
from rl_operator.kube.settings import Images
from rl_operator.render import trainer
from rl_operator.render.metadata import labels, owned_by, stamped
from rl_operator.render.samplers import deployment, own_pods

Manifest = dict[str, Any]

TRAINER_SET = "trainer"
CONTAINER_KEYS = ("name", "image", "resources", "restartPolicy")
POD_KEYS = (
    "resources",
    "nodeSelector",
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "priorityClassName",
    "runtimeClassName",
    "overhead",
    "resourceClaims",
    "schedulerName",
)
"""Fields that decide what a pod takes and where it may run; others do not concern the queue."""


@dataclass(frozen=True, slots=True)
class Priority:
    """A priority class, which orders Workloads in the queue."""

    kind: Kind
    name: str
    value: int | None = None
    """Of the class; None before it was read."""


def priority_class(spec: RLJobSpec) -> Priority | None:
    """The priority class of a job: Kueue's own, else that of the trainer's pods."""
    wanted = spec.scheduling.workload_priority_class_name
    if wanted:
        return Priority(kinds.WORKLOAD_PRIORITY_CLASS, wanted)
    if spec.trainer.priority_class_name:
        return Priority(kinds.PRIORITY_CLASS, spec.trainer.priority_class_name)
    return None


def group_set(group: str) -> str:
    """Name of the pod set of a group of samplers."""
    return f"sampler-{group}"


def pods_asked(group: SamplerGroup, quota: SamplerQuota) -> int:
    """Sampler pods to reserve in the queue, by ``scheduling.samplerQuota``.

    With ``MaxReplicas`` the most that the group's autoscaling may create.
    """
    scaling = group.template.autoscaling
    most = scaling.max_replicas if quota == "MaxReplicas" else None
    return 0 if quota == "None" else most or scaling.min_replicas


def render(
    job: Meta, spec: RLJobSpec, *, images: Images, priority: Priority | None = None
) -> Manifest:
    """The Workload of a job.

    ``trainer.elastic`` lets the queue admit fewer trainer pods than ``trainer.replicas``.
    """
    template = trainer.pod_template(job, spec, attempt=1, images=images)
    sets = [_pod_set(TRAINER_SET, spec.trainer.replicas, template)]
    if spec.trainer.elastic is not None:
        sets[0]["minCount"] = spec.trainer.elastic.min_replicas
    for sampler in spec.pooled:
        count = pods_asked(sampler, spec.scheduling.sampler_quota)
        if count:
            template = _with_own_pods(job, spec, sampler, images=images)
            sets.append(_pod_set(group_set(sampler.name), count, template))
    body: Manifest = {"queueName": spec.scheduling.queue_name, "podSets": sets}
    if priority is not None:
        group, kind = priority.kind.group, priority.kind.name
        body["priorityClassRef"] = {"group": group, "kind": kind, "name": priority.name}
        if priority.value is not None:
            body["priority"] = priority.value
    return stamped(
        {
            "apiVersion": kinds.WORKLOAD.api_version,
            "kind": kinds.WORKLOAD.name,
            "metadata": {
                "name": names.workload(job.name),
                "namespace": job.namespace,
                "labels": labels(job=job.name, run=job.run),
                # The job waits for its pods, which hold the quota, and not for this.
                "ownerReferences": owned_by(job, kinds.RLJOB, goes_first=False),
            },
            "spec": body,
        }
    )


def _with_own_pods(job: Meta, spec: RLJobSpec, group: SamplerGroup, *, images: Images) -> Manifest:
    """A sampler's template, with the containers of the pods of programs or environments for it.

    There are so many of these for each sampler, and Kueue takes few pod sets.
    """
    template = deployment.pod_template(job, spec, group, images=images)
    beside = own_pods.containers_by_sampler(job, spec, group, images=images)
    pod = template["spec"]
    return {**template, "spec": {**pod, "containers": [*pod["containers"], *beside]}}


def _pod_set(name: str, count: int, template: Manifest) -> Manifest:
    pod = template["spec"]
    spec = {key: pod[key] for key in POD_KEYS if key in pod}
    for key in ("initContainers", "containers"):
        if key in pod:
            spec[key] = [
                {part: container[part] for part in CONTAINER_KEYS if container.get(part)}
                for container in pod[key]
            ]
    return {"name": name, "count": count, "template": {"spec": spec}}


def missing_demand(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The part of the wanted Workload that the stored one does not cover; empty if none.

    A stored Workload that reserves more than is wanted suffices.
    """
    present, asked = stored["spec"], wanted["spec"]
    for key in ("queueName", "priorityClassRef"):
        if present.get(key) != asked.get(key):
            return f"{key} of the Workload no longer matches the job."
    sets = {pod_set["name"]: pod_set for pod_set in present["podSets"]}
    for pod_set in asked["podSets"]:
        admitted = sets.get(pod_set["name"])
        if admitted is None or admitted["count"] < pod_set["count"]:
            has = admitted["count"] if admitted is not None else 0
            name, count = pod_set["name"], pod_set["count"]
            return f"Pod set {name} reserves {has} of the {count} pods that the job needs."
        if not _covers(admitted["template"]["spec"], pod_set["template"]["spec"]):
            return f"Pods of set {pod_set['name']} need other resources or nodes than it reserves."
    return ""


def _covers(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    if stored.get("nodeSelector", {}) != asked.get("nodeSelector", {}):
        return False
    if not _suffices(stored, asked):  # resources of whole pods
        return False
    for key in ("initContainers", "containers"):
        known = {container["name"]: container for container in stored.get(key, [])}
        for container in asked.get(key, []):
            name = container["name"]
            # Earlier versions named those of other pods without the prefix.
            reserved = known.get(name) or known.get(name.removeprefix(names.BESIDE_CONTAINER))
            if reserved is None or not _suffices(reserved, container):
                return False
    return True


def _suffices(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    has, needs = _requests(stored), _requests(asked)
    return all(has.get(name, 0.0) >= value for name, value in needs.items())


def _requests(container: Mapping[str, Any]) -> dict[str, float]:
    """The requests of a container or of a whole pod; its limits where it requests nothing.

    Values from a podTemplate may be malformed until the dry run has refused them.
    """
    resources = container.get("resources")
    requests: dict[str, float] = {}
    for group in ("limits", "requests"):
        section = resources.get(group) if isinstance(resources, Mapping) else None
        if isinstance(section, Mapping):
            requests |= {name: amount(value) for name, value in section.items()}
    return requests
