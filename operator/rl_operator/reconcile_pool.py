"""Reconciles one SamplerPool: a Deployment of the size that ``/scale`` asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rl_contracts.documents.sampler import Sampler
from rl_contracts.spec.resources import OURS, SamplerPoolSpec
from rl_contracts.spec.status import ScaleStatus
from rl_operator import (
    assignment,
    kinds,
    logs,
    names,
    observe,
    patience,
    pool_pods,
    pool_runs,
    pool_stalls,
    pool_status,
    shared_status,
    stillness,
)
from rl_operator.apply import Applier
from rl_operator.assignment import Turn
from rl_operator.cluster import Cluster
from rl_operator.conditions import is_true
from rl_operator.desired import deployment
from rl_operator.events import Journal, Note
from rl_operator.kinds import Key
from rl_operator.looks import Looks
from rl_operator.pace import Pace
from rl_operator.pool_making import PoolMaker
from rl_operator.pool_runs import Served
from rl_operator.pool_status import NOTHING_LOST, Lost, Scaled
from rl_operator.progress import Connections, Reading
from rl_operator.readings import ProgressReader
from rl_operator.scaling import PoolScaler
from rl_operator.settings import Images
from rl_operator.shared_pool import SharedPools
from rl_operator.situation import Stall
from rl_operator.snapshot import Job, Pool, PoolSnapshot
from rl_operator.status_writer import StatusWriter
from rl_operator.stillness import Stillness

RESYNC_SECONDS = 600.0
SOON_SECONDS = 0.5
WAITING_SECONDS = 5.0
"""Between two looks at pods that have to go: that one is overdue is no event."""


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
    pace: Pace
    looks: Looks
    stillness: Stillness
    now: Callable[[], float]
    """Seconds since 1970."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    scaler: PoolScaler
    faulty_since: dict[Key, dict[str, float]] = field(default_factory=dict)
    """By pool and pod's uid; a new process begins to count anew."""

    def reconcile(self, key: Key) -> float | None:
        """Reconcile one pool; return after how many seconds to look again, if at all."""
        if self.stillness.holds(key):
            self.pace.saw(key, changed=False)
            return self.pace.wait(key)
        self.stillness.forget(key)
        snapshot, again = self.looks.observe(key, lambda one: observe.pool_snapshot(one, key))
        if snapshot is None or _goes(snapshot.pool) or _is_elsewhere(snapshot.pool):
            self.pace.forget(key)
            self.looks.forget(key)
            self.applier.forget(key)
            self.scaler.forget(key)
            self.faulty_since.pop(key, None)
            return None
        if snapshot.pool.spec is not None and snapshot.pool.spec.shared:
            _note(snapshot)
            return self._take_turns(snapshot, snapshot.pool.spec, again=again)
        if not snapshot.pool.meta.applied and snapshot.pool.meta.owner_uid:
            return None  # its job has created it and is about to say what its pods look like
        _note(snapshot)
        stall = pool_stalls.of_own(snapshot)
        if stall is not None or snapshot.job is None or snapshot.pool.spec is None:
            if _stops(snapshot):  # no template is needed to have no pods
                self._empty(snapshot)
                stall = None
            return self._tell(snapshot, Reading(), stall, Scaled(replicas=0))
        new = again and snapshot.pool.status.observed_generation < 0
        return self._advance(snapshot, snapshot.pool.spec, snapshot.job, again=again, new=new)

    @property
    def _maker(self) -> PoolMaker:
        return PoolMaker(cluster=self.cluster, applier=self.applier, images=self.images)

    def _empty(self, snapshot: PoolSnapshot) -> None:
        there = snapshot.children.get((kinds.DEPLOYMENT.name, snapshot.key.name))
        if there is not None and snapshot.deployment.declared:
            self.cluster.merge(kinds.DEPLOYMENT, deployment.emptied(there.meta))

    def _take_turns(
        self, snapshot: PoolSnapshot, spec: SamplerPoolSpec, *, again: bool
    ) -> float | None:
        """What a shared pool does: it is given to a run, serves it, and is taken from it."""
        turn = assignment.decide(snapshot, now=self.now())
        status = snapshot.pool.status
        given = turn.epoch != status.assignment_epoch
        step = assignment.step(snapshot, now=self.now())
        changes = step == "Serve" and snapshot.deployment.epoch < status.assignment_epoch
        if again and (given or changes):  # who has it is decided by what is there now
            self.looks.changed(snapshot.key)
            return self.reconcile(snapshot.key)
        writes = SharedPools(cluster=self.cluster)
        if step == "Empty":
            writes.empty(snapshot, turn=turn)
        if writes.guard(snapshot.pool.meta, in_use=assignment.in_use(snapshot, turn)):
            return SOON_SECONDS
        stall = pool_stalls.of_shared(snapshot, spec)
        if not given and turn.holder is not None and snapshot.job is not None and stall is None:
            if step == "Create" and not snapshot.children:
                writes.create(self._maker.rendered(snapshot, spec, snapshot.job, 0))
                return SOON_SECONDS
            if step in ("Create", "Serve"):
                return self._advance(snapshot, spec, snapshot.job, turn=turn)
        waited = self._tell(snapshot, Reading(), stall, Scaled(replicas=0), turn=turn)
        return SOON_SECONDS if given else min(waited, WAITING_SECONDS if turn.left else waited)

    def _advance(
        self,
        snapshot: PoolSnapshot,
        spec: SamplerPoolSpec,
        job: Job,
        *,
        turn: Turn | None = None,
        again: bool = False,
        new: bool = False,
    ) -> float:
        rests = _rests(job) or snapshot.held or spec.suspend
        reading = Reading() if rests and not snapshot.pods else self._read(job)
        others = tuple(self._read(one) for one in snapshot.beside)
        scaled = Scaled(replicas=0)
        if not rests and job.spec is not None:
            scaled = self.scaler.scale(snapshot, spec, job.spec, reading)
        replicas = min(scaled.replicas, snapshot.size)
        samplers = pool_runs.by_pod([reading, *others])
        ready_to_shrink = self._choose_victims(snapshot, samplers, replicas)
        there = snapshot.deployment.declared
        size = replicas if ready_to_shrink else there
        stall = self._maker.make(snapshot, spec, job, size, new=new)
        told = (reading, *others)
        served = [Served(*one) for one in zip(snapshot.served, told, strict=False)]
        lost = self._replace(snapshot, spec, served, replicas) if replicas else NOTHING_LOST
        waited = self._tell(snapshot, reading, stall, scaled, lost=lost, turn=turn, others=others)
        if not ready_to_shrink:
            return SOON_SECONDS
        if again and stall is None:
            self._note_stillness(snapshot, job, reading)
        stopped = job.suspended or snapshot.held or spec.suspend
        settled = job.finished or (stopped and not snapshot.pods)
        if settled:
            return min(waited, RESYNC_SECONDS)
        scales = spec.template.autoscaling.mode == "Builtin"  # its evidence is made of looks
        return min(waited, self.progress_seconds if scales else self.pace.wait(snapshot.key))

    def _note_stillness(self, snapshot: PoolSnapshot, job: Job, reading: Reading) -> None:
        """Spare the looks by the clock that would find what this one has found."""
        key, faulty = snapshot.key, self.faulty_since.get(snapshot.key)
        if self.pace.is_quiet(key) and not faulty:
            seconds = min(self.applier.rest_seconds(key), stillness.of_pool(snapshot, reading))
            self.stillness.note(key, job, reading, seconds=seconds)

    def _choose_victims(
        self, snapshot: PoolSnapshot, samplers: Sequence[Sampler], replicas: int
    ) -> bool:
        """Mark the pods that a shrink is to take; whether nothing more is to be marked.

        The Deployment shrinks one look later: its controller must have seen the marks by then.
        """
        surplus = snapshot.deployment.declared - replicas if replicas else 0
        chosen = pool_pods.victims(snapshot.pods, samplers, count=surplus)
        todo = pool_pods.marks(snapshot.pods, chosen)
        for mark in todo:
            self.cluster.annotate(
                kinds.POD,
                snapshot.key.namespace,
                mark.pod,
                {names.DELETION_COST: str(mark.cost) if mark.cost else None},
            )
        return not any(mark.cost for mark in todo)

    def _replace(
        self,
        snapshot: PoolSnapshot,
        spec: SamplerPoolSpec,
        served: Sequence[Served],
        replicas: int,
    ) -> Lost:
        """Delete pods that stay stale or silent, as many as may be away at a time."""
        key = snapshot.key
        found = pool_runs.faults(snapshot.pods, served, now=self.now())
        if found is None:
            self.faulty_since.pop(key, None)  # while nothing is known, nobody is to blame
            return NOTHING_LOST
        since, over = pool_pods.lasting(self.faulty_since.get(key, {}), found, now=self.clock())
        self.faulty_since[key] = since
        chosen = pool_pods.replaceable(
            snapshot.pods,
            [one for one in over if not one.ends_run],
            replicas=replicas,
            max_unavailable=spec.template.rollout.max_unavailable,
        )
        for one in chosen:
            self.cluster.delete(kinds.POD, snapshot.key.namespace, one.pod.name, uid=one.pod.uid)
            told = f"Pod {one.pod.name} is replaced: {one.message}"
            note = Note(f"Sampler{one.reason}", told, "Warning")
            self.journal.post(snapshot.pool.meta, kinds.SAMPLER_POOL, [note])
        late = next((f"Pod {one.pod.name}: {one.message}" for one in over if one.ends_run), "")
        return Lost(replaced=len(chosen), late=late)

    def _read(self, job: Job) -> Reading:
        assert job.spec is not None
        found = self.connections.of(job.meta.namespace, job.spec.storage.secret_name)
        return self.reader.read(job.meta.run, found)

    def _tell(
        self,
        snapshot: PoolSnapshot,
        reading: Reading,
        stall: Stall | None,
        scaled: Scaled,
        *,
        lost: Lost = NOTHING_LOST,
        turn: Turn | None = None,
        others: Sequence[Reading] = (),
    ) -> float:
        before, meta = snapshot.pool.status, snapshot.pool.meta
        if scaled.resource_version:
            meta = replace(meta, resource_version=scaled.resource_version)
        after = pool_status.compute(
            snapshot,
            reading,
            stall=stall,
            replicas=min(scaled.replicas, snapshot.size) if snapshot.pool.spec else 0,
            lost=lost,
            scaled=scaled,
            turn=turn,
            others=others,
            now=self.now(),
        )
        ready = is_true(after.conditions, "Ready")
        self.pace.saw(snapshot.key, changed=before != after or not ready)
        wait = self.statuses.write(
            kinds.SAMPLER_POOL,
            meta,
            before=before,
            after=after,
            patience=patience.of_pool(before, after),
        )
        if wait is None and stall is not None and before != after:
            note = Note(stall.reason, stall.message, "Warning")
            self.journal.post(meta, kinds.SAMPLER_POOL, [note])
        if wait is None and turn is not None:
            self.journal.post(meta, kinds.SAMPLER_POOL, shared_status.notes(before, after))
        if scaled.record is not None:
            self.journal.post(meta, kinds.SAMPLER_POOL, [_scaled(scaled.record)])
        return RESYNC_SECONDS if wait is None else wait


def _goes(pool: Pool) -> bool:
    """Whether a pool's deletion waits for nobody."""
    return pool.meta.deleted_at is not None and names.IN_USE_FINALIZER not in pool.meta.finalizers


def _is_elsewhere(pool: Pool) -> bool:
    """Whether another controller has the pool."""
    return pool.spec is not None and pool.spec.managed_by != OURS


def _note(snapshot: PoolSnapshot) -> None:
    if snapshot.job is not None:
        job = snapshot.job
        logs.note(job=f"{job.meta.namespace}/{job.meta.name}", attempt=job.status.attempt)


def _scaled(record: ScaleStatus) -> Note:
    change = f"From {record.before} to {record.after} pods ({record.reason}). {record.message}"
    return Note("Scaled", change.strip())


def _rests(job: Job) -> bool:
    return (job.finished and not job.keeps_samplers) or job.suspended


def _stops(snapshot: PoolSnapshot) -> bool:
    """Whether the pool's own job is suspended, or its queue lets it have no pods."""
    job = snapshot.job
    mine = job is not None and job.meta.uid == snapshot.pool.meta.owner_uid
    return mine and job is not None and (job.suspended or snapshot.held)
