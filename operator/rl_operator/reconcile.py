"""Reconciles one RLJob: observe, decide, plan, apply, tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.apply.applier import Applier
from rl_operator.apply.requeue import (
    RESYNC_SECONDS,
    SOON_SECONDS,
    STALLED_SECONDS,
    UNSETTLED_INTERVALS,
)
from rl_operator.apply.status_writer import StatusWriter
from rl_operator.cache.cached_reader import Looks
from rl_operator.jobs import deadlines, deletion, unrenderable_job
from rl_operator.jobs.attempt_context import must_be_live, needs_no_proof
from rl_operator.jobs.attempt_step import Turn
from rl_operator.jobs.child_applier import JobMaker
from rl_operator.jobs.inputs import Inputs, InputsReader
from rl_operator.jobs.status_reporter import JobTeller
from rl_operator.kube import kinds, logs
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.conditions import Stall
from rl_operator.kube.kinds import Key
from rl_operator.kube.perform import perform
from rl_operator.kube.settings import Images
from rl_operator.kueue.gate import Gate
from rl_operator.kueue.queueing import Queueing
from rl_operator.pools.shared_pool import SharedPools
from rl_operator.process.events import EventRecorder
from rl_operator.state import attempt_records, observe
from rl_operator.state.decisions import Begin, Ended
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.status.status_input import StatusInput

STOPPING_SECONDS = 2.0
"""Between looks at a job that is being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReconciler:
    """Brings RLJobs to what they declare; holds nothing that matters after a crash."""

    cluster: Cluster
    applier: Applier
    statuses: StatusWriter
    inputs: InputsReader
    queueing: Queueing
    events: EventRecorder
    images: Images
    progress_seconds: float
    looks: Looks
    wake: Callable[[Key], None]
    """Asks for another object to be reconciled."""
    seen: Callable[[Key], None]
    """Told that an object which is being reconciled is about to be observed anew."""
    now: Callable[[], float]
    """Seconds since 1970."""

    def reconcile(self, key: Key) -> float | None:
        """Reconcile one job; return after how many seconds to look again, if at all."""
        snapshot, again = self._observe(key)
        if snapshot is None or snapshot.job.basics.elsewhere:
            self._forget(key)
            return None
        logs.note(job=f"{key.namespace}/{key.name}", attempt=snapshot.job.status.attempt)
        self.inputs.keep(snapshot)
        snapshot, gate = self.queueing.gate(snapshot)
        if again and must_be_live(snapshot.job):
            return self._look_again(key, live=True)
        if snapshot.job.meta.deleted_at is not None:
            return self._delete(snapshot)
        if snapshot.job.finished:
            return self._finish(snapshot)
        assert gate is not None
        if snapshot.job.spec is None:
            return self._stand(snapshot, gate)
        return self._advance(snapshot, snapshot.job.spec, gate, again=again)

    def _observe(self, key: Key) -> tuple[JobSnapshot | None, bool]:
        """What there is of a job, and whether that is what the watches have told."""
        return self.looks.observe(
            key, lambda one: observe.job_snapshot(one, key, queues=self.queueing.enabled)
        )

    def _look_again(self, key: Key, *, live: bool = False) -> float | None:
        if live:
            self.looks.changed(key)
        self.seen(key)  # what has changed since the first look is no reason for a third
        return self.reconcile(key)

    def _forget(self, key: Key) -> None:
        self.inputs.drop(key)
        self.looks.forget(key)
        self.applier.forget(key)
        self.statuses.forget(key)

    def _advance(
        self, snapshot: JobSnapshot, spec: RLJobSpec, gate: Gate, *, again: bool
    ) -> float | None:
        """A job at work, or about to be: observe its inputs, decide, and do what that comes to."""
        granted, status = gate.spec, snapshot.job.status
        assert granted is not None
        idle = spec.suspend and (status.attempt == 0 or attempt_records.ended(status))
        if idle:
            self.inputs.stop_polling(snapshot.key)
        inputs = Inputs() if idle else self.inputs.read(snapshot, spec)
        if deletion.settle_finalizer(self.cluster, snapshot, spec, checked=inputs.checked):
            return SOON_SECONDS
        if inputs.checked and SharedPools(cluster=self.cluster).join(snapshot.job, spec):
            return SOON_SECONDS
        turn = Turn.of(snapshot, granted, inputs, self.now())
        if again and not needs_no_proof(turn.decision, queued=spec.scheduling.queued):
            return self._look_again(snapshot.key, live=True)  # turns: by what is there now
        if isinstance(turn.decision, Ended):
            turn = self._confirmed(snapshot, spec, granted)
        return self._take(turn, snapshot, gate, again=again)

    def _confirmed(self, snapshot: JobSnapshot, spec: RLJobSpec, granted: RLJobSpec) -> Turn:
        """An attempt's end by what the stores say since: its outcome may just have come."""
        inputs = self.inputs.read(snapshot, spec, fresh=True)
        turn = Turn.of(snapshot, granted, inputs, self.now())
        end = turn.decision
        if isinstance(end, Ended) and not end.counts and not end.ignored:
            self.inputs.forget(snapshot.key)  # looked at anew before the next attempt
        return turn

    def _take(self, turn: Turn, snapshot: JobSnapshot, gate: Gate, *, again: bool) -> float | None:
        """Plan and apply what was decided, and tell of it."""
        if turn.inputs.unusable:
            made = self._maker.stop(snapshot, gate)
        else:
            checked = turn.inputs.checked
            made = self._maker.make(snapshot, gate, turn.decision, checked=checked)
            if made.done and again:
                snapshot = self._as_made(snapshot)
        self.queueing.update_workload(gate)
        status_input = turn.status_input(snapshot, gate, made, self.now())
        waited = self._teller.tell(status_input)
        if isinstance(turn.decision, Begin):
            return self._look_again(snapshot.key)  # its ordinal is written: its trainer follows
        if gate.stall is not None:
            return min(waited, STALLED_SECONDS)
        if made.blocked_reason:
            return UNSETTLED_INTERVALS * self.progress_seconds
        return min(waited, self._next(status_input, turn))

    def _as_made(self, snapshot: JobSnapshot) -> JobSnapshot:
        """With what was just made, so that one status tells of it, not the next one, too."""
        fresh, _ = self._observe(snapshot.key)
        if fresh is None:
            return snapshot
        return replace(snapshot, children=fresh.children, pools=fresh.pools)

    def _next(self, status_input: StatusInput, turn: Turn) -> float:
        return deadlines.requeue_after(
            status_input,
            turn.context,
            check_inputs_after=turn.inputs.again_after,
            progress_seconds=self.progress_seconds,
        )

    def _stand(self, snapshot: JobSnapshot, gate: Gate) -> float | None:
        """A job whose spec cannot be read goes on as it was, or is stopped."""
        decision = unrenderable_job.decide(snapshot)
        stall = Stall(reason="InvalidSpec", message=snapshot.job.spec_error)
        self._maker.stop(snapshot, gate)
        self.queueing.update_workload(gate)
        status_input = StatusInput(
            snapshot=snapshot, decision=decision, stall=stall, hold=gate.hold, now=self.now()
        )
        waited = self._teller.tell(status_input)
        if decision is not None:
            return SOON_SECONDS
        if must_be_live(snapshot.job):
            return STALLED_SECONDS
        return waited if waited < RESYNC_SECONDS else None

    def _finish(self, snapshot: JobSnapshot) -> float:
        """A job that is over: end what it has no use for, and delete it when its time has come."""
        self.inputs.stop_polling(snapshot.key)
        self._maker.clear(snapshot)
        if snapshot.job.spec is not None:
            deletion.settle_finalizer(self.cluster, snapshot, snapshot.job.spec, checked=False)
        self.queueing.finish(snapshot)
        waited = self._teller.tell(StatusInput(snapshot=snapshot, now=self.now()))
        return min(waited, self._expire(snapshot))

    def _expire(self, snapshot: JobSnapshot) -> float:
        due, meta = deletion.due(snapshot.job), snapshot.job.meta
        if due is None:
            return RESYNC_SECONDS
        left = due - self.now()
        if left <= 0:
            self.cluster.delete(kinds.RLJOB, meta.namespace, meta.name, uid=meta.uid)
        return min(max(left, SOON_SECONDS), RESYNC_SECONDS)

    def _delete(self, snapshot: JobSnapshot) -> float | None:
        """A job that somebody has deleted: let it go once nothing has to be over before."""
        if not deletion.has_finalizer(snapshot.job.meta):
            return None  # the garbage collector does the rest
        step = deletion.proceed(snapshot, self.inputs.connections, now=self.now())
        for action in step.actions:
            perform(self.cluster, snapshot.key.namespace, action)
        if step.done:
            deletion.set_finalizer(self.cluster, snapshot.job.meta, present=False)
            return None
        self._teller.tell(StatusInput(snapshot=snapshot, stall=step.stall, now=self.now()))
        return STALLED_SECONDS if step.stall else STOPPING_SECONDS

    @property
    def _maker(self) -> JobMaker:
        return JobMaker(
            cluster=self.cluster, applier=self.applier, events=self.events, images=self.images
        )

    @property
    def _teller(self) -> JobTeller:
        return JobTeller(
            statuses=self.statuses,
            events=self.events,
            wake=self.wake,
        )
