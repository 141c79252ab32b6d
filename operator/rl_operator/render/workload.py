"""A job's Workload: what its pods ask a queue for (Kueue, kueue.x-k8s.io/v1beta2).

One pod set for the trainer and one for each group of samplers: admitted together or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.scheduling import SamplerQuota
from rl_contracts.spec.workers import SamplerGroup
from rl_operator.kube import kinds, names
from rl_operator.kube.kinds import Kind
from rl_operator.kube.metadata import Meta
from rl_operator.kube.settings import Images
from rl_operator.kube.subset_diff import amount
from rl_operator.render import deployment, trainer
from rl_operator.render.metadata import labels, owned_by, stamped

Manifest = dict[str, Any]

TRAINER_SET = "trainer"
MOST_SETS = 8
"""Of a Workload."""
CONTAINER_KEYS = ("name", "image", "resources", "restartPolicy")
POD_KEYS = (
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
"""What decides how much a pod takes and where it may run: nothing else is the queue's business."""


@dataclass(frozen=True, slots=True)
class Priority:
    """A class that a Workload's place in the queue comes from."""

    kind: Kind
    name: str
    value: int | None = None
    """As the class says; None while it was not read."""


def priority_class(spec: RLJobSpec) -> Priority | None:
    """The class of a job: that of the queue, else that of the trainer's pods."""
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
    """How many sampler pods a queue is asked for, as ``scheduling.samplerQuota`` says.

    With ``MaxReplicas`` it is as many as the group may ever have by itself.
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
    for sampler in spec.samplers:
        count = pods_asked(sampler, spec.scheduling.sampler_quota)
        if count:
            template = deployment.pod_template(job, spec, sampler, images=images)
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
                # Its quota must not go to others while pods of the job still end.
                "ownerReferences": owned_by(job, kinds.RLJOB, goes_first=False),
            },
            "spec": body,
        }
    )


def _pod_set(name: str, count: int, template: Manifest) -> Manifest:
    pod = template["spec"]
    spec = {key: pod[key] for key in POD_KEYS if key in pod}
    for key in ("initContainers", "containers"):
        if key in pod:
            spec[key] = [
                {part: one[part] for part in CONTAINER_KEYS if one.get(part)} for one in pod[key]
            ]
    return {"name": name, "count": count, "template": {"spec": spec}}


def missing_demand(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """What a stored Workload does not cover of the wanted one; empty: it covers all of it.

    One that asks for more than is wanted will do: less of what was admitted is used then.
    """
    there, asked = stored["spec"], wanted["spec"]
    for key in ("queueName", "priorityClassRef"):
        if there.get(key) != asked.get(key):
            return f"{key} of the Workload is not what the job says any more."
    sets = {pod_set["name"]: pod_set for pod_set in there["podSets"]}
    for pod_set in asked["podSets"]:
        found = sets.get(pod_set["name"])
        if found is None or found["count"] < pod_set["count"]:
            has = found["count"] if found is not None else 0
            name, count = pod_set["name"], pod_set["count"]
            return f"Pod set {name} has {has} of the {count} pods that the job asks for."
        if not _covers(found["template"]["spec"], pod_set["template"]["spec"]):
            return f"Pods of set {pod_set['name']} do not fit the Workload's resources or nodes."
    return ""


def _covers(there: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    if there.get("nodeSelector", {}) != asked.get("nodeSelector", {}):
        return False
    for key in ("initContainers", "containers"):
        known = {one["name"]: one for one in there.get(key, [])}
        for one in asked.get(key, []):
            if one["name"] not in known or not _suffices(known[one["name"]], one):
                return False
    return True


def _suffices(there: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    has, needs = _requests(there), _requests(asked)
    return all(has.get(name, 0.0) >= value for name, value in needs.items())


def _requests(container: Mapping[str, Any]) -> dict[str, float]:
    """What a container takes: its limits where it requests nothing.

    Those of a podTemplate may be anything, until the API server has refused such pods.
    """
    resources = container.get("resources")
    found: dict[str, float] = {}
    for group in ("limits", "requests"):
        there = resources.get(group) if isinstance(resources, Mapping) else None
        if isinstance(there, Mapping):
            found |= {name: amount(value) for name, value in there.items()}
    return found
