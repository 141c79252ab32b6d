"""Reads a job's place in its queue and the objects that an admission refers to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.apply.applier import Made
from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiHookError, ApiRefusedError
from rl_operator.kube.api_requests import Manifest
from rl_operator.kube.conditions import Stall
from rl_operator.kube.kinds import Kind
from rl_operator.kube.settings import Images, JobRules
from rl_operator.kueue import admission, gate, workload_marks, workload_status
from rl_operator.kueue.gate import Gate
from rl_operator.kueue.workload_marks import Flavor
from rl_operator.render import workload as desired
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.validation.refusals import of_spec

log = logging.getLogger(__name__)


class QueueObjects(Protocol):
    """Reads the objects that a queue refers to, and writes Workloads."""

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """One object, or None."""

    def merge(self, kind: Kind, manifest: Manifest, *, subresource: str = "") -> Manifest:
        """Change the fields of the manifest and no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queueing:
    """Decides by the queues what jobs may have."""

    cluster: QueueObjects
    images: Images
    enabled: bool
    """Whether the operator may read and write Workloads."""
    now: Callable[[], float]
    """Seconds since 1970."""
    rules: JobRules

    def gate(
        self, snapshot: JobSnapshot, *, refused: Callable[[], bool]
    ) -> tuple[JobSnapshot, Gate | None]:
        """The snapshot with ``held`` or ``evicted`` set, and what the job may have now.

        The gate is None for a job that is over or being deleted. ``refused``: whether the API
        server refuses the pods of its spec. It is asked only where the spec wants other pods than
        were admitted; a job at work loses nothing by such an edit.
        """
        job = snapshot.job
        if job.meta.deleted_at is not None:
            return snapshot, None
        if job.finished:
            return replace(snapshot, job=replace(job, evicted=self._takes_back(snapshot))), None
        opened = self._gate(snapshot, job.spec)
        if opened.hold is not None and opened.hold.renew and refused():
            opened = gate.unrendered(snapshot)
        return replace(snapshot, job=replace(job, held=opened.hold is not None)), opened

    def _takes_back(self, snapshot: JobSnapshot) -> bool:
        """Whether the pods that a finished job keeps must go."""
        basics = snapshot.job.basics
        if not (self.enabled and basics.queued and snapshot.has_queue_kind):
            return False
        return admission.hold(admission.of(snapshot), None, basics.queue_name) is not None

    def _gate(self, snapshot: JobSnapshot, spec: RLJobSpec | None) -> Gate:
        if not snapshot.job.basics.queued:
            return gate.without_queue(snapshot, spec)
        if not self.enabled:
            return gate.shut(spec, gate.SWITCHED_OFF)
        if not snapshot.has_queue_kind:
            return gate.shut(spec, gate.NO_KUEUE)
        started = snapshot.job.started
        if spec is None or next(of_spec(spec, self.rules, started=started), None) is not None:
            return gate.unrendered(snapshot)
        return self._of_queue(snapshot, spec)

    def _of_queue(self, snapshot: JobSnapshot, spec: RLJobSpec) -> Gate:
        priority = desired.priority_class(spec)
        workload = admission.of(snapshot)
        if workload is None and priority is not None and not spec.wants_no_pods:
            value = self._priority(priority)
            if value is None:
                return _unknown_class(spec, priority)
            priority = replace(priority, value=value)
        demand = desired.render(snapshot.job.meta, spec, images=self.images, priority=priority)
        admitted = workload is not None and workload.admitted
        flavors = self._flavors(workload, demand) if workload is not None and admitted else {}
        return gate.of_queue(snapshot, spec, demand, flavors=flavors, now=self.now())

    def _priority(self, priority: desired.Priority) -> int | None:
        raw = self.cluster.get(priority.kind, "", priority.name)
        return int(raw["value"]) if raw is not None else None

    def _flavors(
        self, workload: admission.Workload, demand: Manifest
    ) -> Mapping[str, Flavor | None]:
        """Flavors as they are recorded; one that did not exist may exist once its group is back."""
        known = workload_marks.recorded(workload)
        if known is None:
            return {name: self._flavor(name) for name in workload_marks.flavors_of(workload)}
        needed = workload_marks.flavors_of(workload, demand=demand)
        return {
            name: self._flavor(name) if flavor is None and name in needed else flavor
            for name, flavor in known.items()
        }

    def _flavor(self, name: str) -> Flavor | None:
        raw = self.cluster.get(kinds.RESOURCE_FLAVOR, "", name)
        return Flavor.parse(raw.get("spec", {})) if raw is not None else None

    def update_workload(self, gate: Gate) -> Made:
        """Write the Workload, or else its status, where that is due.

        Raises:
            ApiConflictError: it has changed since it was observed.
        """
        if gate.mark is not None:
            return self._write(gate.mark)
        return self._write(gate.status, subresource="status")

    def finish(self, snapshot: JobSnapshot) -> Made:
        """Mark the Workload finished once its job is over and has no pods.

        Raises:
            ApiConflictError: it has changed since it was observed.
        """
        workload = admission.of(snapshot)
        status = workload_status.ended(snapshot, workload, now=self.now()) if workload else None
        return self._write(status, subresource="status")

    def _write(self, change: Manifest | None, *, subresource: str = "") -> Made:
        """Change a Workload.

        What Kueue's webhook or the API server keeps from being written is returned, not raised: the
        job's status is reported all the same.
        """
        if change is None:
            return Made()
        try:
            self.cluster.merge(kinds.WORKLOAD, change, subresource=subresource)
        except ApiHookError as error:
            log.warning("not written: %s", error)
            return Made(outage=error)
        except ApiRefusedError as error:
            log.warning("not written: %s", error)
            return Made.refused(f"update Workload {change['metadata']['name']}", error)
        return Made()


def _unknown_class(spec: RLJobSpec, priority: desired.Priority) -> Gate:
    of_queue = priority.kind == kinds.WORKLOAD_PRIORITY_CLASS
    path = "scheduling.workloadPriorityClassName" if of_queue else "trainer.priorityClassName"
    stall = Stall(
        reason="PriorityClassNotFound",
        message=f"spec.{path} = {priority.name!r}: The cluster has no {priority.kind.name} of this "
        "name. Create it, or name another one.",
    )
    return gate.shut(spec, stall)
