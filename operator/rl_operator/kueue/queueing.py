"""Looks at a job's place in its queue, and reads what an admission refers to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.kube import kinds
from rl_operator.kube.api_requests import Manifest
from rl_operator.kube.conditions import Stall
from rl_operator.kube.kinds import Kind
from rl_operator.kube.settings import Images
from rl_operator.kueue import admission, gate, workload_status
from rl_operator.kueue.gate import Flavor, Gate
from rl_operator.render import workload as desired
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.validation.refusals import of_spec

Admitted = tuple[str | float | None, ...]
"""A Workload's uid, when it was admitted (in whole seconds), and with which flavors."""
KEPT_FLAVORS = 5000


class QueueObjects(Protocol):
    """Reads of what a queue refers to, and writes to a Workload."""

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """One object, or None."""

    def merge(self, kind: Kind, manifest: Manifest, *, subresource: str = "") -> Manifest:
        """Change the fields of the manifest and no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queueing:
    """Looks at jobs' places in queues."""

    cluster: QueueObjects
    images: Images
    enabled: bool
    """Whether the operator may read and write Workloads."""
    now: Callable[[], float]
    """Seconds since 1970."""
    flavors: dict[Admitted, Mapping[str, Flavor | None]] = field(default_factory=dict)
    """As they were read for an admission: pods of a later minute must not differ."""

    def look(self, snapshot: JobSnapshot) -> tuple[JobSnapshot, Gate | None]:
        """A snapshot that says whether its job is held back, and what the job may have now.

        There is no gate for a job that is over or being deleted.
        """
        job = snapshot.job
        if job.finished or job.meta.deleted_at is not None:
            return snapshot, None
        found = self._gate(snapshot, job.spec)
        held = replace(job, held=found.hold is not None)
        return replace(snapshot, job=held), found

    def _gate(self, snapshot: JobSnapshot, spec: RLJobSpec | None) -> Gate:
        if not snapshot.job.basics.queued:
            return gate.without_queue(snapshot, spec)
        if not self.enabled:
            return gate.shut(spec, gate.SWITCHED_OFF)
        if not snapshot.has_queue_kind:
            return gate.shut(spec, gate.NO_KUEUE)
        if spec is None or next(of_spec(spec), None) is not None:
            return gate.unrendered(snapshot)
        return self._of_queue(snapshot, spec)

    def _of_queue(self, snapshot: JobSnapshot, spec: RLJobSpec) -> Gate:
        priority = desired.priority_class(spec)
        there = admission.of(snapshot)
        if there is None and priority is not None and not spec.suspend:
            value = self._priority(priority)
            if value is None:
                return _unknown_class(spec, priority)
            priority = replace(priority, value=value)
        demand = desired.render(snapshot.job.meta, spec, images=self.images, priority=priority)
        flavors = self._flavors(there) if there is not None and there.admitted else {}
        return gate.of_queue(snapshot, spec, demand, flavors=flavors, now=self.now())

    def _priority(self, priority: desired.Priority) -> int | None:
        found = self.cluster.get(priority.kind, "", priority.name)
        return int(found["value"]) if found is not None else None

    def _flavors(self, workload: admission.Workload) -> Mapping[str, Flavor | None]:
        wanted = {
            name for assignment in workload.assignments.values() for name in assignment.flavors
        }
        known = (workload.meta.uid, workload.since("Admitted"), *sorted(wanted))
        if known not in self.flavors:
            found = {name: self._flavor(name) for name in sorted(wanted)}
            if None in found.values():
                return found  # looked for again
            if len(self.flavors) >= KEPT_FLAVORS:
                self.flavors.clear()
            self.flavors[known] = found
        return self.flavors[known]

    def _flavor(self, name: str) -> Flavor | None:
        raw = self.cluster.get(kinds.RESOURCE_FLAVOR, "", name)
        if raw is None:
            return None
        spec = raw.get("spec", {})
        return Flavor(
            node_labels=spec.get("nodeLabels", {}), tolerations=tuple(spec.get("tolerations", ()))
        )

    def tell(self, found: Gate | None) -> None:
        """Write what the Workload is to be told now.

        Raises:
            ApiConflictError: it has changed since it was seen.
        """
        if found is not None and found.status is not None:
            self.cluster.merge(kinds.WORKLOAD, found.status, subresource="status")

    def finish(self, snapshot: JobSnapshot) -> None:
        """Tell the Workload of a job that is over and whose pods have gone."""
        there = admission.of(snapshot)
        told = workload_status.ended(snapshot, there, now=self.now()) if there else None
        if told is not None:
            self.cluster.merge(kinds.WORKLOAD, told, subresource="status")


def _unknown_class(spec: RLJobSpec, priority: desired.Priority) -> Gate:
    of_queue = priority.kind == kinds.WORKLOAD_PRIORITY_CLASS
    path = "scheduling.workloadPriorityClassName" if of_queue else "trainer.priorityClassName"
    stall = Stall(
        reason="PriorityClassNotFound",
        message=f"spec.{path} = {priority.name!r}: the cluster has no {priority.kind.name} of this "
        "name. Create it, or name another one.",
    )
    return gate.shut(spec, stall)
