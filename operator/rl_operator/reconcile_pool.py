"""Reconciles one SamplerPool: a Deployment of the size that ``/scale`` asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rl_contracts.spec.resources import OURS, SamplerPoolSpec
from rl_operator.apply.applier import Applier
from rl_operator.apply.requeue import RESYNC_SECONDS, UNSETTLED_INTERVALS
from rl_operator.apply.status_writer import StatusWriter
from rl_operator.cache.cached_reader import CachedReader
from rl_operator.kube import logs, names
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.conditions import is_true
from rl_operator.kube.kinds import Key
from rl_operator.kube.settings import Images, JobRules
from rl_operator.pools import assignment, emptying, runs, stalls, used_pods
from rl_operator.pools.assignment import Allocation
from rl_operator.pools.child_applier import PoolChildApplier
from rl_operator.pools.container_restarts import ContainerRestarts
from rl_operator.pools.pod_removal import PodRemoval
from rl_operator.pools.runs import Served
from rl_operator.pools.scaling import PoolScaler
from rl_operator.pools.shared_pool import SharedPools
from rl_operator.pools.status import NOTHING_LOST, Scaled
from rl_operator.pools.status_reporter import PoolStatusReporter
from rl_operator.process.events import EventRecorder
from rl_operator.state import observe
from rl_operator.state.progress import Reading
from rl_operator.state.snapshot import Job, Pool, PoolSnapshot
from rl_operator.state.start_troubles import StartTroubles
from rl_operator.stores.run_poll import RunProgress

SOON_SECONDS = 0.5
WAITING_SECONDS = 5.0
"""Between two checks of pods that are to terminate: no event says that one is overdue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReconciler:
    """Reconciles SamplerPools with their specs."""

    cluster: Cluster
    reader: CachedReader
    applier: Applier
    statuses: StatusWriter
    progress: RunProgress
    troubles: StartTroubles
    events: EventRecorder
    images: Images
    progress_seconds: float
    now: Callable[[], float]
    """Seconds since 1970."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    scaler: PoolScaler
    rules: JobRules
    faulty_since: dict[Key, dict[str, float]] = field(default_factory=dict)
    """Since when pods have been faulty, by pool and the pod's uid, in monotonic seconds. A new
    process starts from zero."""
    restarts: ContainerRestarts = field(default_factory=ContainerRestarts)

    def reconcile(self, key: Key) -> float | None:
        """Reconcile one pool.

        Returns:
            Seconds until it is reconciled again; None: not before something changes.
        """
        snapshot = self.reader.observe(
            key,
            lambda reads: observe.pool_snapshot(reads, key, sandboxes=self.rules.agent_sandbox),
            must_be_live=self._changes_hands,
        )
        if (
            snapshot is None
            or _is_being_deleted(snapshot.pool)
            or _is_of_another_controller(snapshot.pool)
        ):
            self._forget(key)
            return None
        self.restarts.observe(key, snapshot.pods)
        snapshot = self.troubles.of_pool(snapshot)
        if snapshot.pool.spec is not None and snapshot.pool.spec.shared:
            _note(snapshot)
            return self._share(snapshot, snapshot.pool.spec)
        _note(snapshot)
        stall = stalls.of_own(snapshot, self.rules)
        if stall is not None or snapshot.job is None or snapshot.pool.spec is None:
            if _is_own(snapshot) and _rests(snapshot):
                stall = emptying.empty(self.cluster, snapshot)
            return self._reporter.report(snapshot, Reading(), stall, Scaled(replicas=0))
        return self._advance(snapshot, snapshot.pool.spec, snapshot.job)

    def _forget(self, key: Key) -> None:
        self.progress.forget(key)
        self.reader.forget(key)
        self.applier.forget(key)
        self.statuses.forget(key)
        self.scaler.forget(key)
        self.faulty_since.pop(key, None)
        self.restarts.forget(key)

    def _changes_hands(self, snapshot: PoolSnapshot | None) -> bool:
        """Whether a shared pool is about to get another run, which a stale read must not decide."""
        spec = snapshot.pool.spec if snapshot is not None else None
        if snapshot is None or spec is None or not spec.shared:
            return False
        if _is_being_deleted(snapshot.pool) or _is_of_another_controller(snapshot.pool):
            return False
        epoch = snapshot.pool.status.assignment_epoch
        if assignment.decide(snapshot, now=self.now()).epoch != epoch:
            return True
        serves = assignment.step(snapshot, now=self.now()) == "Serve"
        return serves and snapshot.deployment.epoch < epoch

    def _share(self, snapshot: PoolSnapshot, spec: SamplerPoolSpec) -> float | None:
        """Assign a shared pool to a run, let it serve that run, or release it."""
        allocation = assignment.decide(snapshot, now=self.now())
        reassigned = allocation.epoch != snapshot.pool.status.assignment_epoch
        step = assignment.step(snapshot, now=self.now())
        writes = SharedPools(cluster=self.cluster)
        refused = writes.empty(snapshot, allocation=allocation) if step == "Empty" else None
        if writes.guard(snapshot.pool.meta, in_use=assignment.in_use(snapshot, allocation)):
            return SOON_SECONDS
        stall = refused or stalls.of_shared(snapshot, spec, self.rules)
        if stall is not None and spec.suspend:
            stall = emptying.empty(self.cluster, snapshot) or stall
        if (
            not reassigned
            and allocation.holder is not None
            and snapshot.job is not None
            and stall is None
        ):
            if step == "Create" and not snapshot.children:
                writes.create(self._children.rendered(snapshot, spec, snapshot.job, 0))
                return SOON_SECONDS
            if step in ("Create", "Serve"):
                return self._advance(snapshot, spec, snapshot.job, allocation=allocation)
        wait = self._reporter.report(
            snapshot, Reading(), stall, Scaled(replicas=0), allocation=allocation
        )
        return (
            SOON_SECONDS if reassigned else min(wait, WAITING_SECONDS if allocation.left else wait)
        )

    def _advance(
        self,
        snapshot: PoolSnapshot,
        spec: SamplerPoolSpec,
        job: Job,
        *,
        allocation: Allocation | None = None,
    ) -> float:
        """Scale a pool that serves a run, and replace its faulty pods."""
        key, rests = snapshot.key, _rests(snapshot)
        stopped = rests and not snapshot.pods
        if stopped:
            self.progress.forget(key)
        reading = Reading() if stopped else self._read(key, job)
        others = tuple(self._read(key, other) for other in snapshot.beside)
        scaled = Scaled(replicas=0)
        if not rests and job.spec is not None:
            scaled = self.scaler.scale(snapshot, spec, job.spec, reading)
        replicas = min(scaled.replicas, snapshot.size)
        readings, removal = (reading, *others), self._removal
        ready_to_shrink = removal.choose_victims(snapshot, runs.by_pod(readings), replicas)
        size = replicas if ready_to_shrink else snapshot.deployment.declared
        unserved = runs.unserved(readings) and not snapshot.deployment.ready
        stall = self._children.make(snapshot, spec, job, size, unserved=unserved)
        if stall is not None and not size:
            stall = emptying.empty(self.cluster, snapshot) or (None if rests else stall)
        used_pods.remove(self.cluster, snapshot)
        served = [Served(*pair) for pair in zip(snapshot.served, readings, strict=False)]
        lost = removal.replace(snapshot, spec, served, replicas) if replicas else NOTHING_LOST
        wait = self._reporter.report(
            snapshot, reading, stall, scaled, lost=lost, allocation=allocation, others=others
        )
        if not ready_to_shrink:
            return SOON_SECONDS
        return min(wait, self._next(snapshot, spec, job, reading))

    def _read(self, key: Key, job: Job) -> Reading:
        assert job.spec is not None
        return self.progress.read(key, job.meta.run, job.spec.storage.secret_name)

    def _next(
        self, snapshot: PoolSnapshot, spec: SamplerPoolSpec, job: Job, reading: Reading
    ) -> float:
        """Seconds until a pool is reconciled again if nothing enqueues it before."""
        stopped = job.suspended or snapshot.held or spec.suspend
        if job.finished or (stopped and not snapshot.pods):
            return RESYNC_SECONDS
        if spec.template.autoscaling.mode == "Builtin":
            return self.progress_seconds  # each reconcile is one sample for the autoscaler
        if self.faulty_since.get(snapshot.key) or not is_at_rest(snapshot, reading):
            return UNSETTLED_INTERVALS * self.progress_seconds
        return min(RESYNC_SECONDS, self._children.unguarded_seconds(snapshot) or RESYNC_SECONDS)

    @property
    def _children(self) -> PoolChildApplier:
        return PoolChildApplier(
            cluster=self.cluster, applier=self.applier, images=self.images, now=self.now
        )

    @property
    def _removal(self) -> PodRemoval:
        return PodRemoval(
            cluster=self.cluster,
            events=self.events,
            now=self.now,
            clock=self.clock,
            faulty_since=self.faulty_since,
        )

    @property
    def _reporter(self) -> PoolStatusReporter:
        return PoolStatusReporter(statuses=self.statuses, events=self.events, now=self.now)


def _is_being_deleted(pool: Pool) -> bool:
    """Whether a pool is deleted and no run holds it by its finalizer."""
    return pool.meta.deleted_at is not None and names.IN_USE_FINALIZER not in pool.meta.finalizers


def _is_of_another_controller(pool: Pool) -> bool:
    """Whether another controller manages the pool."""
    return pool.spec is not None and pool.spec.managed_by != OURS


def _note(snapshot: PoolSnapshot) -> None:
    if snapshot.job is not None:
        job = snapshot.job
        logs.note(job=f"{job.meta.namespace}/{job.meta.name}", attempt=job.status.attempt)


def _needs_no_pods(job: Job) -> bool:
    """Whether a job is suspended, or finished without keeping its samplers."""
    return (job.finished and not job.keeps_samplers) or job.suspended


def _is_own(snapshot: PoolSnapshot) -> bool:
    """Whether the pool belongs to its job."""
    return snapshot.job is not None and snapshot.job.meta.uid == snapshot.pool.meta.owner_uid


def _rests(snapshot: PoolSnapshot) -> bool:
    """Whether the pool must have no pods: it or its job rests, or its queue allows none."""
    job, spec = snapshot.job, snapshot.pool.spec
    if spec is not None and spec.suspend:
        return True
    return job is not None and (_needs_no_pods(job) or snapshot.held)


def is_at_rest(snapshot: PoolSnapshot, reading: Reading) -> bool:
    """Whether only an event or a change of its run can change a pool.

    Time alone can change a pod from which no sampler has registered, and the assignment of a shared
    pool.
    """
    if snapshot.pool.spec is None or snapshot.pool.spec.shared:
        return False
    registered = {sampler.pod for sampler in reading.samplers}
    silent = any(pod.live and pod.name not in registered for pod in snapshot.pods)
    return not silent and is_true(snapshot.pool.status.conditions, "Ready")
