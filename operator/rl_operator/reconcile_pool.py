"""Reconciles one SamplerPool: a Deployment of the size that ``/scale`` asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rl_contracts.spec.resources import SamplerPoolSpec
from rl_operator import kinds, names, observe, pool_status
from rl_operator.apply import Applier, StatusWriter
from rl_operator.cluster import Cluster
from rl_operator.desired import deployment, objects
from rl_operator.events import Journal, Note
from rl_operator.kinds import Key
from rl_operator.plan import Wanted
from rl_operator.progress import Connections, ProgressReader, Reading
from rl_operator.refusals import of_spec
from rl_operator.settings import Images
from rl_operator.snapshot import Job, PoolSnapshot
from rl_operator.status import Stall

RESYNC_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReconciler:
    """Brings SamplerPools to what they declare."""

    cluster: Cluster
    applier: Applier
    statuses: StatusWriter
    connections: Connections
    reader: ProgressReader
    journal: Journal
    images: Images
    progress_seconds: float
    now: Callable[[], float]
    """Seconds since 1970."""

    def reconcile(self, key: Key) -> float | None:
        """Reconcile one pool; return after how many seconds to look again, if at all."""
        snapshot = observe.pool_snapshot(self.cluster, key)
        if snapshot is None or snapshot.pool.meta.deleted_at is not None:
            return None
        if not snapshot.pool.meta.applied and snapshot.pool.meta.owner_uid:
            return None  # its job has created it and is about to say what its pods look like
        stall = _stall(snapshot)
        reading, replicas = Reading(), 0
        if stall is None:
            assert snapshot.job is not None
            assert snapshot.pool.spec is not None
            replicas = 0 if snapshot.job.finished else snapshot.pool.spec.replicas
            stall = self._make(snapshot, snapshot.pool.spec, snapshot.job, replicas)
            reading = self._read(snapshot.job)
        waited = self._tell(snapshot, reading, stall, replicas)
        settled = snapshot.job is None or snapshot.job.finished
        return min(waited, RESYNC_SECONDS if settled else self.progress_seconds)

    def _make(
        self, snapshot: PoolSnapshot, spec: SamplerPoolSpec, job: Job, replicas: int
    ) -> Stall | None:
        assert job.spec is not None
        meta = snapshot.pool.meta
        pods = deployment.render(
            meta, spec, job=job.meta, job_spec=job.spec, replicas=replicas, images=self.images
        )
        budget = objects.disruption_budget(meta, job=job.meta.name, run=job.meta.uid)
        made = self.applier.make(
            snapshot.key,
            wanted=[Wanted(manifest=pods), Wanted(manifest=budget)],
            unwanted=[],
            observed=snapshot.children,
            owner_uid=meta.uid,
        )
        return made.stall

    def _read(self, job: Job) -> Reading:
        assert job.spec is not None
        found = self.connections.of(job.meta.namespace, job.spec.storage.secret_name)
        return self.reader.read(job.meta.uid, found)

    def _tell(
        self, snapshot: PoolSnapshot, reading: Reading, stall: Stall | None, replicas: int
    ) -> float:
        before, meta = snapshot.pool.status, snapshot.pool.meta
        after = pool_status.compute(
            snapshot, reading, stall=stall, replicas=replicas, now=self.now()
        )  # fmt: skip
        wait = self.statuses.write(
            kinds.SAMPLER_POOL,
            meta,
            before=before,
            after=after,
            may_wait=pool_status.only_counters_differ(before, after),
        )
        if wait is None and stall is not None and before != after:
            note = Note(stall.reason, stall.message, "Warning")
            self.journal.post(meta, kinds.SAMPLER_POOL, [note])
        return RESYNC_SECONDS if wait is None else wait


def _stall(snapshot: PoolSnapshot) -> Stall | None:
    pool = snapshot.pool
    if pool.spec is None:
        return Stall(reason="InvalidSpec", message=pool.spec_error)
    job = snapshot.job
    if job is None:
        message = f"Namespace {pool.meta.namespace} has no RLJob {pool.spec.job}."
        return Stall(reason="JobNotFound", message=message)
    if job.spec is None:
        return Stall(reason="JobInvalid", message=f"RLJob {job.meta.name}: {job.spec_error}")
    declared = [names.pool(job.meta.name, group.name) for group in job.spec.samplers]
    if pool.meta.owner_uid != job.meta.uid or pool.meta.name not in declared:
        message = f"RLJob {job.meta.name} declares no such pool. Add it to its spec.samplers."
        return Stall(reason="PoolNotDeclared", message=message)
    refusal = next(of_spec(job.spec), None)
    return Stall.of(refusal) if refusal is not None else None
