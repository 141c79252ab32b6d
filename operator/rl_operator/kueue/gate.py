"""What a job may have now, as its queue says: nothing before it is admitted.

A job that is held back is stopped as a suspended one is. Its Workload is told once that is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.workers import Placement
from rl_operator.kube.conditions import Stall
from rl_operator.kube.metadata import Child, Raw
from rl_operator.kueue import admission, workload_status
from rl_operator.kueue.admission import Assignment, Hold, Workload
from rl_operator.render.workload import TRAINER_SET, group_set
from rl_operator.state.attempt_records import is_at_rest
from rl_operator.state.snapshot import JobSnapshot

Manifest = dict[str, Any]

SWITCHED_OFF = Stall(
    reason="KueueSwitchedOff",
    message="spec.scheduling.provider = 'Kueue': this operator has no rights to Workloads. Set "
    "kueue.enabled in the values of its chart, or spec.scheduling.provider to None.",
)
NO_KUEUE = Stall(
    reason="KueueMissing",
    message="spec.scheduling.provider = 'Kueue': the cluster has no Workload kind of "
    "kueue.x-k8s.io/v1beta2. Install Kueue 0.15 or later; it is looked for all the time.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """What a ResourceFlavor says of the pods that use it."""

    node_labels: Mapping[str, str]
    tolerations: tuple[Raw, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a job may have now."""

    spec: RLJobSpec | None
    """With what its admission says of nodes and numbers of pods; None: it cannot be read."""
    hold: Hold | None = None
    """Why it may have no pods."""
    stall: Stall | None = None
    sizes: Mapping[str, int] | None = None
    """Sampler pods by group; None: there is no queue."""
    make: Manifest | None = None
    """The Workload to be made, once inputs are in order."""
    drop: Child | None = None
    """The Workload that ought to go."""
    status: Manifest | None = None
    """A change of the Workload's status that is due."""

    @property
    def token(self) -> tuple[object, ...]:
        """Changes with whatever a job's objects are made from."""
        sizes = tuple(sorted(self.sizes.items())) if self.sizes is not None else None
        spec = self.spec if sizes is not None else None
        placed = repr((spec.trainer, spec.samplers)) if spec is not None else ""
        return (sizes, placed, self.make is not None, self.drop is not None)


def without_queue(snapshot: JobSnapshot, spec: RLJobSpec | None) -> Gate:
    """The gate of a job that asks no queue, or not any more."""
    stray, job = admission.of(snapshot), snapshot.job
    ends = job.basics.suspend and not is_at_rest(snapshot, job.status)
    return Gate(spec=spec, drop=stray.child if stray is not None and not ends else None)


def shut(spec: RLJobSpec | None, stall: Stall) -> Gate:
    """The gate of a job that no queue can be asked for."""
    hold = Hold(reason=stall.reason, message=stall.message)
    sizes = admission.sizes(spec, None) if spec is not None else None
    return Gate(spec=spec, hold=hold, stall=stall, sizes=sizes)


def unrendered(snapshot: JobSnapshot) -> Gate:
    """The gate of a job of which nothing can be made: it keeps the pods that were admitted.

    Once it has been suspended and has none it leaves the queue, as any other does.
    """
    job, workload = snapshot.job, admission.of(snapshot)
    hold = admission.hold(workload, None, job.basics.queue_name)
    sizes = admission.sizes(job.spec, None) if job.spec is not None else None
    leaves = workload is not None and job.basics.suspend and is_at_rest(snapshot, job.status)
    drop = workload.child if workload is not None and leaves else None
    return Gate(spec=job.spec, hold=hold, sizes=sizes, drop=drop)


def of_queue(
    snapshot: JobSnapshot,
    spec: RLJobSpec,
    demand: Manifest,
    *,
    flavors: Mapping[str, Flavor | None],
    now: float,
) -> Gate:
    """The gate of a job whose pods a queue admits.

    Args:
        snapshot: what is there.
        spec: of the job.
        demand: its Workload as it would be made now.
        flavors: those that its admission names; None: one that is not there.
        now: seconds since 1970.
    """
    workload = admission.of(snapshot)
    rests = is_at_rest(snapshot, snapshot.job.status)
    hold = admission.hold(workload, demand, spec.scheduling.queue_name)
    stall = None
    if hold is None and workload is not None:
        stall = unusable(spec, workload, demand, flavors)
        hold = Hold(reason=stall.reason, message=stall.message) if stall is not None else None
    closed = Gate(spec=spec, hold=hold, stall=stall, sizes=admission.sizes(spec, None))
    if spec.suspend:
        return replace(closed, drop=workload.child if workload is not None and rests else None)
    if workload is None:
        return replace(closed, make=demand if rests else None)
    if hold is None:
        return Gate(
            spec=granted(spec, workload, flavors),
            sizes=admission.sizes(spec, workload),
            status=workload_status.started(snapshot, spec, workload, now=now),
        )
    if not rests:
        return closed
    if hold.renew:
        return replace(closed, drop=workload.child)
    return replace(closed, status=workload_status.released(workload, now=now))


def unusable(
    spec: RLJobSpec,
    workload: Workload,
    demand: Mapping[str, Any],
    flavors: Mapping[str, Flavor | None],
) -> Stall | None:
    """Why an admission cannot be carried out; None: it can."""
    asked = {pod_set["name"]: pod_set["template"]["spec"] for pod_set in demand["spec"]["podSets"]}
    for name, pod in asked.items():
        found = workload.assignments.get(name)
        if found is None:
            told = f"Workload {workload.meta.name} is admitted without its pod set {name}."
            return Stall(reason="AdmissionIncomplete", message=told)
        if found.topology:
            told = (
                f"{', '.join(found.flavors)} of pod set {name} places pods by topology, which is "
                f"not supported. Use a ResourceFlavor without spec.topologyName in the ClusterQueue"
                f" of spec.scheduling.queueName = {spec.scheduling.queue_name!r}."
            )
            return Stall(reason="TopologyUnsupported", message=told)
        missing = [flavor for flavor in found.flavors if flavors.get(flavor) is None]
        if missing:
            told = f"Pod set {name} was admitted with ResourceFlavor {missing[0]}: there is none."
            return Stall(reason="FlavorNotFound", message=told)
        wanted, wish = node_selector(found, flavors), pod.get("nodeSelector", {})
        clash = next((key for key in wanted if wish.get(key, wanted[key]) != wanted[key]), None)
        if clash is not None:
            told = (
                f"nodeSelector {clash} = {wish[clash]!r} of pod set {name}: it was admitted for "
                f"nodes with {wanted[clash]!r}. Remove it, or change it."
            )
            return Stall(reason="FlavorConflict", message=told)
    return None


def granted(spec: RLJobSpec, workload: Workload, flavors: Mapping[str, Flavor | None]) -> RLJobSpec:
    """A spec within an admission: its nodes, and no more trainer pods than it has."""
    count, elastic = admission.trainers(workload), spec.trainer.elastic
    if elastic is not None:
        most = min(elastic.max_replicas, count)
        least = min(elastic.min_replicas, most)
        elastic = elastic.model_copy(update={"min_replicas": least, "max_replicas": most})
    sized = {"replicas": min(spec.trainer.replicas, count), "elastic": elastic}
    placed = _placed(spec.trainer, workload.assignments[TRAINER_SET], flavors)
    trainer = spec.trainer.model_copy(update={**placed, **sized})
    samplers = [
        sampler
        if (found := workload.assignments.get(group_set(sampler.name))) is None
        else sampler.resolved(
            sampler.template.model_copy(update=_placed(sampler.template, found, flavors))
        )
        for sampler in spec.samplers
    ]
    return spec.model_copy(update={"trainer": trainer, "samplers": samplers})


def node_selector(assignment: Assignment, flavors: Mapping[str, Flavor | None]) -> dict[str, str]:
    """Labels that a node must have."""
    chosen = (flavors.get(name) for name in assignment.flavors)
    of_flavors = {
        key: value for one in chosen if one is not None for key, value in one.node_labels.items()
    }
    return {**of_flavors, **assignment.node_selector}


def _placed(
    placement: Placement, assignment: Assignment, flavors: Mapping[str, Flavor | None]
) -> dict[str, object]:
    tolerations = [dict(toleration) for toleration in placement.tolerations]
    for name in assignment.flavors:
        flavor = flavors[name]
        assert flavor is not None  # else the admission is of no use
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
    found: dict[str, object] = {
        "node_selector": {**placement.node_selector, **node_selector(assignment, flavors)},
        "tolerations": tolerations,
    }
    if assignment.labels or assignment.annotations:
        found["pod_template"] = _marked(placement.pod_template or {}, assignment)
    return found


def _marked(template: Mapping[str, Any], assignment: Assignment) -> Manifest:
    metadata = template.get("metadata") or {}
    marks = {
        key: {**(metadata.get(key) or {}), **there}
        for key, there in (
            ("labels", assignment.labels),
            ("annotations", assignment.annotations),
        )
    }
    return {**template, "metadata": {**metadata, **marks}}
