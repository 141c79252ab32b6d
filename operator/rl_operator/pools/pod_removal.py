"""Removes single pods of a pool: marks victims of a shrink, deletes stale and silent pods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rl_contracts.documents.sampler import Sampler
from rl_contracts.spec.resources import SamplerPoolSpec
from rl_operator.kube import kinds, names
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.kinds import Key
from rl_operator.pools import removal_plan, runs
from rl_operator.pools.removal_plan import Fault
from rl_operator.pools.runs import Served
from rl_operator.pools.status import NOTHING_LOST, Lost
from rl_operator.process.events import EventNote, EventRecorder
from rl_operator.state.snapshot import PoolSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRemoval:
    """Marks and deletes pods."""

    cluster: Cluster
    events: EventRecorder
    now: Callable[[], float]
    """Seconds since 1970."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    faulty_since: dict[Key, dict[str, float]]
    """By pool and pod's uid: when the fault was first seen, monotonic seconds."""

    def choose_victims(
        self, snapshot: PoolSnapshot, samplers: Sequence[Sampler], replicas: int
    ) -> bool:
        """Mark the pods that a shrink takes; whether all marks were already written.

        The Deployment shrinks one reconcile later, so that its controller has seen the marks.
        """
        surplus = snapshot.deployment.declared - replicas if replicas else 0
        chosen = removal_plan.victims(snapshot.pods, samplers, count=surplus)
        todo = removal_plan.marks(snapshot.pods, chosen)
        for mark in todo:
            self.cluster.annotate(
                kinds.POD,
                snapshot.key.namespace,
                mark.pod,
                {names.DELETION_COST: str(mark.cost) if mark.cost else None},
            )
        return not any(mark.cost for mark in todo)

    def replace(
        self,
        snapshot: PoolSnapshot,
        spec: SamplerPoolSpec,
        served: Sequence[Served],
        replicas: int,
    ) -> Lost:
        """Delete pods that stay stale or silent, as many as may be unavailable at a time."""
        key = snapshot.key
        faults = runs.faults(snapshot.pods, served, now=self.now())
        if faults is None:
            self.faulty_since.pop(key, None)  # without a reading no fault is known
            return NOTHING_LOST
        since, over = removal_plan.lasting(self.faulty_since.get(key, {}), faults, now=self.clock())
        self.faulty_since[key] = since
        chosen = removal_plan.replaceable(
            snapshot.pods,
            [fault for fault in over if not fault.ends_run],
            replicas=replicas,
            max_unavailable=spec.template.rollout.max_unavailable,
        )
        for fault in chosen:
            self._delete(snapshot, fault)
        late = next(
            (f"Pod {fault.pod.name}: {fault.message}" for fault in over if fault.ends_run), ""
        )
        return Lost(replaced=len(chosen), late=late)

    def _delete(self, snapshot: PoolSnapshot, faulty: Fault) -> None:
        pod = faulty.pod
        self.cluster.delete(kinds.POD, snapshot.key.namespace, pod.name, uid=pod.uid)
        message = f"Replacing pod {pod.name}: {faulty.message}"
        note = EventNote(f"Sampler{faulty.reason}", message, "Warning")
        self.events.record(snapshot.pool.meta, kinds.SAMPLER_POOL, [note])
