"""Where and how many pods an admission lets a job have, and whether it can be carried out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import Placement
from rl_operator.kube.conditions import Stall
from rl_operator.kueue import admission
from rl_operator.kueue.admission import Assignment, Workload
from rl_operator.kueue.workload_marks import Flavor
from rl_operator.render.workload import TRAINER_SET, group_set

Manifest = dict[str, Any]


def unusable(
    spec: RLJobSpec,
    workload: Workload,
    demand: Mapping[str, Any],
    flavors: Mapping[str, Flavor | None],
) -> Stall | None:
    """Why an admission cannot be carried out; None: it can."""
    asked = {pod_set["name"]: pod_set["template"]["spec"] for pod_set in demand["spec"]["podSets"]}
    queue = f"spec.scheduling.queueName = {spec.scheduling.queue_name!r}: "
    again = f". Then set spec.active of Workload {workload.meta.name} to true."
    for name, pod in asked.items():
        assignment = workload.assignments.get(name)
        if assignment is None:
            message = (
                f"{queue}Workload {workload.meta.name} was admitted without its pod set {name}. "
                "Delete the Workload, so that the job queues again."
            )
            return Stall(reason="AdmissionIncomplete", message=message)
        if assignment.topology:
            message = (
                f"{queue}{', '.join(assignment.flavors)} of pod set {name} places pods by "
                "topology, which is not supported. Use a ResourceFlavor without spec.topologyName "
                f"in the ClusterQueue{again}"
            )
            return Stall(reason="TopologyUnsupported", message=message)
        missing = [flavor for flavor in assignment.flavors if flavors.get(flavor) is None]
        if missing:
            message = (
                f"{queue}Pod set {name} was admitted with ResourceFlavor {missing[0]}, which does "
                f"not exist. Create it, or correct the ClusterQueue{again}"
            )
            return Stall(reason="FlavorNotFound", message=message)
        conflict = _selector_conflict(name, pod, node_selector(assignment, flavors))
        if conflict:
            message = f"{conflict} Or correct the ResourceFlavor{again}"
            return Stall(reason="FlavorConflict", message=message)
    return None


def _selector_conflict(pod_set: str, pod: Mapping[str, Any], admitted: Mapping[str, str]) -> str:
    """How pods' own node selector excludes the nodes of their admission; empty: it does not."""
    own = pod.get("nodeSelector", {})
    key = next((key for key in admitted if own.get(key, admitted[key]) != admitted[key]), None)
    if key is None:
        return ""
    return (
        f"nodeSelector {key} = {own[key]!r} of pod set {pod_set}: The queue admitted it to nodes "
        f"with {admitted[key]!r}. Remove the key, or change it: the job then queues again."
    )


def granted(
    spec: RLJobSpec,
    workload: Workload,
    demand: Mapping[str, Any],
    flavors: Mapping[str, Flavor | None],
) -> RLJobSpec:
    """A spec within an admission: its nodes, and no more trainer pods than it has.

    Groups that the job no longer asks its queue for are not placed by an earlier admission.
    """
    asked = {pod_set["name"] for pod_set in demand["spec"]["podSets"]}
    count, elastic = admission.trainers(workload), spec.trainer.elastic
    if elastic is not None:
        most = min(elastic.max_replicas, count)
        least = min(elastic.min_replicas, most)
        elastic = elastic.model_copy(update={"min_replicas": least, "max_replicas": most})
    sized = {"replicas": min(spec.trainer.replicas, count), "elastic": elastic}
    placed = _placed(spec.trainer, workload.assignments[TRAINER_SET], flavors)
    trainer = spec.trainer.model_copy(update={**placed, **sized})
    samplers = [
        sampler.resolved(
            sampler.template.model_copy(
                update=_placed(sampler.template, workload.assignments[name], flavors)
            )
        )
        if (name := group_set(sampler.name)) in asked
        else sampler
        for sampler in spec.samplers
    ]
    return spec.model_copy(update={"trainer": trainer, "samplers": samplers})


def node_selector(assignment: Assignment, flavors: Mapping[str, Flavor | None]) -> dict[str, str]:
    """Labels that a node must have."""
    chosen = (flavors.get(name) for name in assignment.flavors)
    of_flavors = {
        key: value
        for flavor in chosen
        if flavor is not None
        for key, value in flavor.node_labels.items()
    }
    return {**of_flavors, **assignment.node_selector}


def _placed(
    placement: Placement, assignment: Assignment, flavors: Mapping[str, Flavor | None]
) -> dict[str, object]:
    tolerations = [dict(toleration) for toleration in placement.tolerations]
    for name in assignment.flavors:
        flavor = flavors[name]
        assert flavor is not None  # else the admission is unusable
        tolerations += [
            dict(toleration)
            for toleration in flavor.tolerations
            if dict(toleration) not in tolerations
        ]
    tolerations += [
        dict(toleration)
        for toleration in assignment.tolerations
        if dict(toleration) not in tolerations
    ]
    placed: dict[str, object] = {
        "node_selector": {**placement.node_selector, **node_selector(assignment, flavors)},
        "tolerations": tolerations,
    }
    if assignment.labels or assignment.annotations:
        placed["pod_template"] = _marked(placement.pod_template or {}, assignment)
    return placed


def _marked(template: Mapping[str, Any], assignment: Assignment) -> Manifest:
    metadata = template.get("metadata") or {}
    marks = {
        key: {**(metadata.get(key) or {}), **added}
        for key, added in (
            ("labels", assignment.labels),
            ("annotations", assignment.annotations),
        )
    }
    return {**template, "metadata": {**metadata, **marks}}
