"""A job that asks a queue, on the model cluster; the queue admits and evicts at any time."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.status import Condition
from rl_operator.kube import kinds
from rl_operator.kube.api_errors import ApiConflictError
from rl_operator.kube.kinds import Kind
from rl_operator.kube.settings import DEFAULT_RULES
from rl_operator.kube.timestamps import format_time
from rl_operator.kueue.gate import Gate
from rl_operator.kueue.queueing import Queueing
from rl_operator.state import observe
from rl_operator.state.snapshot import JobSnapshot
from tests.kube import kueue
from tests.unit.rl_operator.builders import IMAGES, NOW, a_pod
from tests.unit.rl_operator.model_life import Life

WORKLOAD = ("Workload", "rljob-job")
POOL = ("SamplerPool", "job-main")
Raw = dict[str, Any]


class QueuedLife(Life):
    """A job with ``scheduling.provider: Kueue``."""

    def __init__(self, **lifecycle: Any) -> None:
        super().__init__(**lifecycle)
        self.sections = {"scheduling": {"provider": "Kueue", "queueName": "team"}}
        self.scaled: tuple[int, int] = (0, 0)
        """Generation of the pool that its reconciler saw last, and how many pods it admitted."""
        self.lost_flavors: set[str] = set()
        """ResourceFlavors that do not exist."""

    @property
    def queued(self) -> bool:
        """Whether the job asks a queue now."""
        return bool(self.sections["scheduling"]["provider"] == "Kueue")

    def snapshot(self) -> JobSnapshot:
        """Workloads are looked for only where there may be one."""
        seen = super().snapshot()
        if observe._may_be_queued(seen.job):
            return seen
        children = {key: value for key, value in seen.children.items() if key != WORKLOAD}
        return dataclasses.replace(seen, children=children)

    def look(self, seen: JobSnapshot) -> tuple[JobSnapshot, Gate | None]:
        return self._queueing().gate(seen, refused=lambda: False)

    def update_queue(self, seen: JobSnapshot, gate: Gate | None) -> None:
        queueing = self._queueing()
        if gate is None:
            queueing.finish(seen)
        else:
            queueing.update_workload(gate)

    def _queueing(self) -> Queueing:
        return Queueing(
            cluster=self, images=IMAGES, enabled=True, now=lambda: self.now, rules=DEFAULT_RULES
        )

    def get(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        """What the API server has of flavors and classes."""
        exists = kind == kinds.RESOURCE_FLAVOR and name not in self.lost_flavors
        return kueue.flavor(name) if exists else None

    def merge(self, kind: Kind, manifest: Raw, *, subresource: str = "") -> Raw:
        """The operator tells the Workload something, and Kueue evicts one that is deactivated."""
        assert kind == kinds.WORKLOAD
        workload = self.workload
        version = manifest["metadata"]["resourceVersion"]
        if workload is None or workload["metadata"]["resourceVersion"] != version:
            raise ApiConflictError(doing="merge", status=409, message="changed meanwhile")
        if not subresource:
            changed = {
                **workload["metadata"].get("annotations", {}),
                **manifest["metadata"]["annotations"],
            }
            kept = {name: value for name, value in changed.items() if value is not None}
            workload["metadata"]["annotations"] = kept
            workload["spec"].update(manifest.get("spec", {}))
            self.set_workload(workload.get("status", {}))
            self.activate(active=workload["spec"].get("active", True))
            self.writes += 1
            return workload
        status = {**workload.get("status", {}), **manifest["status"]}
        self.set_workload({key: value for key, value in status.items() if value is not None})
        self.writes += 1
        return workload

    @property
    def workload(self) -> Raw | None:
        return self.cluster.objects.get(WORKLOAD)

    def set_workload(self, status: Raw) -> None:
        """Write the Workload's status, as whoever it is."""
        stored = self.cluster.objects[WORKLOAD]
        stored["status"] = copy.deepcopy(status)
        version = int(stored["metadata"]["resourceVersion"])
        stored["metadata"]["resourceVersion"] = str(version + 1)

    def activate(self, *, active: bool) -> None:
        """What an administrator does."""
        workload = self.workload
        if workload is None:
            return
        workload["spec"]["active"] = active
        self.set_workload(workload.get("status", {}))
        if not active and kueue.holds_quota(workload):
            self.evict("Deactivated")
        elif active and workload.get("status"):
            self.set_workload(kueue.requeued(workload))

    def admit(self) -> None:
        """The queue has room."""
        if self.workload is not None and kueue.admissible(self.workload):
            self.set_workload(kueue.admitted(self.workload))

    def evict(self, reason: str = "Preempted") -> None:
        """The queue wants its quota back."""
        workload = self.workload
        if (
            workload is not None
            and kueue.holds_quota(workload)
            and workload["status"].get("admission")
        ):
            self.set_workload(kueue.evicted(workload, reason=reason))

    def requeue(self) -> None:
        """What kept the queue from queueing it again is over."""
        workload = self.workload
        if workload is not None and kueue.condition(workload, "Requeued").get("status") == "False":
            self.set_workload(kueue.requeued(workload))

    def holds_quota(self) -> bool:
        """Whether pods may be there."""
        return kueue.holds_quota(self.workload)

    def _mark(self) -> tuple[object, ...]:
        return (*super()._mark(), self.scaled)

    def _samplers(self) -> None:
        """The pool's reconciler, its Deployment and the kubelet."""
        pool = self.cluster.objects.get(POOL)
        job = self.snapshot().job
        admitted = 0
        over = job.finished and not job.keeps_samplers
        if pool is not None and not self.suspend and not over:
            admitted = pool["spec"].get("admitted", 0 if self.queued else 2)
        if pool is not None:
            self.scaled = (pool["metadata"]["generation"], admitted)
        if admitted:
            for name in ("sampler-1", "sampler-2"):
                self.pods.setdefault(name, a_pod("sampler", name=name))
        else:
            self._delete([pod for pod in self.pods if pod.startswith("sampler")])

    def _pool_status(self, _name: str) -> SamplerPoolStatus:
        generation, admitted = self.scaled
        condition = Condition(
            type="Ready",
            status="True",
            reason="AllReady" if admitted else "Suspended",
            observed_generation=generation,
            last_transition_time=format_time(NOW),
        )
        return SamplerPoolStatus(observed_generation=generation, conditions=[condition])
