"""Reconciles one RLJob: observe, decide, render, apply, report the status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from rl_operator.apply.applier import Applier, Made
from rl_operator.apply.requeue import (
    RESYNC_SECONDS,
    SOON_SECONDS,
    STALLED_SECONDS,
    UNSETTLED_INTERVALS,
)
from rl_operator.apply.status_writer import StatusWriter
from rl_operator.cache.cached_reader import CachedReader, Reads
from rl_operator.jobs import deadlines, deletion, unrenderable_job
from rl_operator.jobs.attempt_step import AttemptStep, may_use_cache, rests_on_absence
from rl_operator.jobs.child_applier import JobChildApplier
from rl_operator.jobs.inputs import InputsReader
from rl_operator.jobs.status_reporter import JobStatusReporter
from rl_operator.kube import kinds, logs, metrics
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.conditions import Stall
from rl_operator.kube.kinds import Key
from rl_operator.kube.perform import perform
from rl_operator.kube.settings import Images
from rl_operator.kueue.gate import Gate, refused
from rl_operator.kueue.queueing import Queueing
from rl_operator.pools.shared_pool import SharedPools
from rl_operator.process.events import EventRecorder
from rl_operator.state import attempt_records, observe
from rl_operator.state.decisions import Ended, Halted
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.state.start_troubles import StartTroubles
from rl_operator.status.status_input import StatusInput
from rl_operator.stores.refusals import is_outage

STOPPING_SECONDS = 2.0
"""Between two checks of a job that is being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedJob:
    """A job as it was read, and what follows for it."""

    snapshot: JobSnapshot
    gate: Gate | None
    """What the job may have now; None once it is over or being deleted."""
    step: AttemptStep | None = None
    """None if there is nothing to decide: it is over, being deleted, or its spec is unreadable."""

    @property
    def must_be_live(self) -> bool:
        """Whether acting on a stale read could end a live attempt or begin a second one."""
        job, step = self.snapshot.job, self.step
        if rests_on_absence(job):
            return True
        return step is not None and not may_use_cache(step.decision, queued=job.basics.queued)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReconciler:
    """Brings RLJobs to what they declare; holds nothing that matters after a crash."""

    cluster: Cluster
    reader: CachedReader
    applier: Applier
    statuses: StatusWriter
    inputs: InputsReader
    queueing: Queueing
    troubles: StartTroubles
    events: EventRecorder
    images: Images
    progress_seconds: float
    enqueue: Callable[[Key], None]
    """Asks for another object to be reconciled."""
    now: Callable[[], float]
    """Seconds since 1970."""

    def reconcile(self, key: Key) -> float | None:
        """Reconcile one job.

        Returns:
            Seconds until it is reconciled again; None: not before something changes.

        Raises:
            ApiConflictError: an object has changed since it was observed; the next reconcile reads
                live.
        """
        observed = self._observe(key)
        if observed is None:
            self._forget(key)
            return None
        snapshot, gate, step = observed.snapshot, observed.gate, observed.step
        snapshot = self.troubles.of_job(snapshot)
        logs.note(job=f"{key.namespace}/{key.name}", attempt=snapshot.job.status.attempt)
        metrics.JOB_PHASES.set(key.namespace, key.name, snapshot.job.status.phase)
        if snapshot.job.meta.deleted_at is not None:
            return self._delete(snapshot)
        if snapshot.job.finished:
            return self._finish(snapshot)
        assert gate is not None
        if step is None:
            wait = self._keep_or_stop(snapshot, gate)
        else:
            wait = self._advance(snapshot, gate, step)
        return SOON_SECONDS if deadlines.stops_next(snapshot) else wait

    def _observe(self, key: Key) -> ObservedJob | None:
        """Read a job and decide; None if it is gone or another controller's."""

        def read(reads: Reads) -> ObservedJob | None:
            snapshot = observe.job_snapshot(reads, key, queues=self.queueing.enabled)
            if snapshot is None or snapshot.job.basics.elsewhere:
                return None
            snapshot, gate = self.queueing.gate(
                snapshot, refused=partial(self.inputs.refuses_pods, snapshot)
            )
            return ObservedJob(snapshot=snapshot, gate=gate, step=self._decide(snapshot, gate))

        return self.reader.observe(
            key, read, must_be_live=lambda observed: observed is not None and observed.must_be_live
        )

    def _decide(
        self, snapshot: JobSnapshot, gate: Gate | None, *, fresh: bool = False
    ) -> AttemptStep | None:
        """Decide the next step of a job's attempts; with ``fresh`` by its run as it is now."""
        spec, status = snapshot.job.spec, snapshot.job.status
        if spec is None or gate is None or gate.spec is None:
            return None
        if spec.wants_no_pods and (status.attempt == 0 or attempt_records.ended(status)):
            inputs = self.inputs.of_idle(snapshot, spec)
        else:
            inputs = self.inputs.read(snapshot, spec, fresh=fresh)
        return AttemptStep.decide(snapshot, gate.spec, inputs, self.now())

    def _advance(self, snapshot: JobSnapshot, gate: Gate, step: AttemptStep) -> float:
        """Apply the step of a job at work, or about to be, and report its status."""
        if self._prepare(snapshot, checked=step.inputs.checked):
            return SOON_SECONDS
        if isinstance(step.decision, Ended | Halted):
            step = self._confirm(snapshot, gate)
        stall = step.inputs.stall
        if stall is not None and not step.inputs.checked:
            gate = refused(snapshot, gate, outage=is_outage(stall.reason), now=self.now())
        made = self._apply(snapshot, gate, step)
        if made.done:
            snapshot = self._with_children(snapshot)
        made = made.then(self.queueing.update_workload(gate))
        status_input = replace(
            step.status_input(snapshot, gate, made, self.now()), images=self.images
        )
        reported = self._reporter.report(status_input)
        if gate.stall is not None:
            return min(reported.wait, STALLED_SECONDS)
        if made.blocked_reason:  # a webhook, which may be slow to fail
            return UNSETTLED_INTERVALS * self.progress_seconds
        return min(
            reported.wait,
            deadlines.requeue_after(
                status_input,
                step.context,
                status_changed=reported.changed,
                check_inputs_after=step.inputs.check_after,
                progress_seconds=self.progress_seconds,
            ),
        )

    def _prepare(self, snapshot: JobSnapshot, *, checked: bool) -> bool:
        """Write the job's finalizer and its pool's label; whether one of them had to be written."""
        spec = snapshot.job.spec
        assert spec is not None
        if deletion.settle_finalizer(self.cluster, snapshot, spec, checked=checked):
            return True
        return checked and SharedPools(cluster=self.cluster).join(snapshot.job, spec)

    def _confirm(self, snapshot: JobSnapshot, gate: Gate) -> AttemptStep:
        """Decide an attempt's end by a read that begins now: its outcome may just have come.

        Of an attempt that was stopped it is the last read: its trainer has ended the step that it
        was at.
        """
        step = self._decide(snapshot, gate, fresh=True)
        assert step is not None
        end = step.decision
        if isinstance(end, Ended) and not end.counts and not end.ignored:
            self.inputs.forget(snapshot.key)  # they are checked again before the next attempt
        return step

    def _apply(self, snapshot: JobSnapshot, gate: Gate, step: AttemptStep) -> Made:
        if step.inputs.unusable or gate.refused:
            return self._children.stop(snapshot, gate)
        return self._children.make(snapshot, gate, step.decision, checked=step.inputs.checked)

    def _with_children(self, snapshot: JobSnapshot) -> JobSnapshot:
        """The snapshot with what was just made, so that one status reports it, not the next one."""
        fresh = self.reader.observe(
            snapshot.key,
            lambda reads: observe.job_snapshot(reads, snapshot.key, queues=self.queueing.enabled),
        )
        if fresh is None:
            return snapshot
        return replace(snapshot, children=fresh.children, pools=fresh.pools)

    def _forget(self, key: Key) -> None:
        self.inputs.drop(key)
        self.reader.forget(key)
        self.applier.forget(key)
        self.statuses.forget(key)
        metrics.JOB_PHASES.remove(key.namespace, key.name)

    def _keep_or_stop(self, snapshot: JobSnapshot, gate: Gate) -> float | None:
        """Keep a job whose spec cannot be read as it is, or stop it."""
        decision = unrenderable_job.decide(snapshot)
        made = self._children.stop(snapshot, gate).then(self.queueing.update_workload(gate))
        message = f"{snapshot.job.spec_error} {made.hindrance}".strip()
        status_input = StatusInput(
            snapshot=snapshot,
            decision=decision,
            stall=Stall(reason="InvalidSpec", message=message),
            blocked_reason=made.blocked_reason,
            hold=gate.hold,
            now=self.now(),
        )
        wait = self._reporter.report(status_input).wait
        if decision is not None:
            return SOON_SECONDS
        if rests_on_absence(snapshot.job) or made.hindered:
            return STALLED_SECONDS
        return wait if wait < RESYNC_SECONDS else None

    def _finish(self, snapshot: JobSnapshot) -> float:
        """Clean up after a finished job, and delete it once ``ttlSecondsAfterFinished`` is over."""
        self.inputs.stop_polling(snapshot.key)
        cleared = self._children.clear(snapshot)
        if snapshot.job.spec is not None:
            deletion.settle_finalizer(self.cluster, snapshot, snapshot.job.spec, checked=False)
        marked = self.queueing.finish(snapshot)
        wait = self._reporter.report(StatusInput(snapshot=snapshot, now=self.now())).wait
        wait = min(wait, self._expire(snapshot))
        if cleared.hindered or marked.hindered:  # the rest is written later
            wait = min(wait, UNSETTLED_INTERVALS * self.progress_seconds)
        return deadlines.after_end(snapshot, wait)

    def _expire(self, snapshot: JobSnapshot) -> float:
        due, meta = deletion.due(snapshot.job), snapshot.job.meta
        if due is None:
            return RESYNC_SECONDS
        left = due - self.now()
        if left <= 0:
            self.cluster.delete(kinds.RLJOB, meta.namespace, meta.name, uid=meta.uid)
        return min(max(left, SOON_SECONDS), RESYNC_SECONDS)

    def _delete(self, snapshot: JobSnapshot) -> float | None:
        """Release a deleted job once nothing has to be done before it goes."""
        if not deletion.has_finalizer(snapshot.job.meta):
            return None  # the garbage collector does the rest
        inputs = self.inputs
        step = deletion.proceed(snapshot, inputs.deletions, inputs.adoption, now=self.now())
        for action in step.actions:
            perform(self.cluster, snapshot.key.namespace, action)
        if step.done:
            deletion.set_finalizer(self.cluster, snapshot.job.meta, present=False)
            return None
        self._reporter.report(StatusInput(snapshot=snapshot, stall=step.stall, now=self.now()))
        return STALLED_SECONDS if step.stall else STOPPING_SECONDS

    @property
    def _children(self) -> JobChildApplier:
        return JobChildApplier(
            cluster=self.cluster, applier=self.applier, events=self.events, images=self.images
        )

    @property
    def _reporter(self) -> JobStatusReporter:
        return JobStatusReporter(
            statuses=self.statuses,
            events=self.events,
            enqueue=self.enqueue,
        )
