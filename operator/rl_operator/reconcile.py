"""Reconciles one RLJob: observe, decide, plan, apply, tell."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.status import RLJobStatus
from rl_operator import attempts, deletion, job_conditions, kinds, observe
from rl_operator.apply import Applier, StatusWriter
from rl_operator.attempts import Begin, Complete, Decision, Ended
from rl_operator.cluster import Cluster
from rl_operator.desired import job as desired
from rl_operator.events import Journal, of_actions, of_change
from rl_operator.inputs import Inputs, InputsReader
from rl_operator.kinds import Key
from rl_operator.settings import Images
from rl_operator.snapshot import JobSnapshot, parse_time
from rl_operator.status import Situation, Stall, only_counters_differ

log = logging.getLogger(__name__)

RESYNC_SECONDS = 600.0
SOON_SECONDS = 0.05
STALLED_SECONDS = 10.0
"""Between looks at a cause that no event tells of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReconciler:
    """Brings RLJobs to what they declare; holds nothing that matters after a crash."""

    cluster: Cluster
    applier: Applier
    statuses: StatusWriter
    inputs: InputsReader
    journal: Journal
    images: Images
    progress_seconds: float
    now: Callable[[], float]
    """Seconds since 1970."""

    def reconcile(self, key: Key) -> float | None:
        """Reconcile one job; return after how many seconds to look again, if at all."""
        snapshot = observe.job_snapshot(self.cluster, key)
        if snapshot is None:
            self.inputs.forget(key)
            return None
        if snapshot.job.meta.deleted_at is not None:
            return self._delete(snapshot)
        if snapshot.job.finished:
            return self._finished(snapshot)
        if snapshot.job.spec is None:
            stall = Stall(reason="InvalidSpec", message=snapshot.job.spec_error)
            self._tell(snapshot, self._situation(snapshot, stall=stall))
            return None
        return self._advance(snapshot, snapshot.job.spec)

    def _advance(self, snapshot: JobSnapshot, spec: RLJobSpec) -> float:
        if self._settle_finalizer(snapshot, spec):
            return SOON_SECONDS
        inputs = self.inputs.read(snapshot, spec)
        decision = attempts.decide(_view(snapshot, spec, inputs, self.now()))
        if isinstance(decision, Ended) and not decision.counts:
            self.inputs.forget(snapshot.key)  # looked at anew before the next attempt
        stall = inputs.stall
        if not inputs.unusable:
            stall = self._make(snapshot, spec, inputs, decision) or stall
        situation = self._situation(snapshot, inputs=inputs, decision=decision, stall=stall)
        waited = self._tell(snapshot, situation)
        return min(waited, self._next(snapshot, inputs, decision))

    def _make(
        self, snapshot: JobSnapshot, spec: RLJobSpec, inputs: Inputs, decision: Decision
    ) -> Stall | None:
        status = snapshot.job.status
        under_way = status.attempt > 0 and not attempts.ended(status)
        run_trainer = under_way and not isinstance(decision, Ended | Complete)
        wanted = desired.wanted(
            snapshot,
            spec,
            checked=inputs.checked,
            run_trainer=run_trainer,
            images=self.images,
        )
        made = self.applier.make(
            snapshot.key,
            wanted=wanted,
            unwanted=desired.unwanted(snapshot, spec),
            observed=snapshot.children,
            owner_uid=snapshot.job.meta.uid,
        )
        self.journal.post(snapshot.job.meta, kinds.RLJOB, of_actions(made.done))
        return made.stall

    def _finished(self, snapshot: JobSnapshot) -> float:
        self.applier.make(
            snapshot.key,
            wanted=[],
            unwanted=desired.unwanted(snapshot, snapshot.job.spec),
            observed=snapshot.children,
            owner_uid=snapshot.job.meta.uid,
        )
        if snapshot.job.spec is not None:
            self._settle_finalizer(snapshot, snapshot.job.spec)
        self._tell(snapshot, self._situation(snapshot))
        return self._expire(snapshot)

    def _expire(self, snapshot: JobSnapshot) -> float:
        spec, meta = snapshot.job.spec, snapshot.job.meta
        ended = parse_time(snapshot.job.status.completion_time)
        ttl = spec.lifecycle.ttl_seconds_after_finished if spec else None
        if ttl is None or ended is None:
            return RESYNC_SECONDS
        left = ended + ttl - self.now()
        if left <= 0:
            self.cluster.delete(kinds.RLJOB, meta.namespace, meta.name, uid=meta.uid)
        return min(max(left, SOON_SECONDS), RESYNC_SECONDS)

    def _delete(self, snapshot: JobSnapshot) -> float | None:
        if not deletion.has_finalizer(snapshot.job.meta):
            return None  # the garbage collector does the rest
        step = deletion.proceed(snapshot, self.inputs.connections, now=self.now())
        for action in step.actions:
            self.applier.perform(snapshot.key, action)
        if step.done:
            deletion.set_finalizer(self.cluster, snapshot.job.meta, present=False)
            return None
        self._tell(snapshot, self._situation(snapshot, stall=step.stall))
        return STALLED_SECONDS if step.stall else 2.0

    def _settle_finalizer(self, snapshot: JobSnapshot, spec: RLJobSpec) -> bool:
        wanted = deletion.wants_finalizer(spec)
        if wanted == deletion.has_finalizer(snapshot.job.meta):
            return False
        deletion.set_finalizer(self.cluster, snapshot.job.meta, present=wanted)
        return True

    def _situation(
        self,
        snapshot: JobSnapshot,
        *,
        inputs: Inputs | None = None,
        decision: Decision | None = None,
        stall: Stall | None = None,
    ) -> Situation:
        seen = inputs or Inputs()
        return Situation(
            snapshot=snapshot,
            reading=seen.reading,
            bucket=seen.bucket,
            decision=decision,
            stall=stall,
            checking=seen.checking,
            now=self.now(),
        )

    def _tell(self, snapshot: JobSnapshot, situation: Situation) -> float:
        """Write the status where it has changed; return how long a held-back change may wait."""
        before, after = snapshot.job.status, job_conditions.compute(situation)
        wait = self.statuses.write(
            kinds.RLJOB,
            snapshot.job.meta,
            before=before,
            after=after,
            may_wait=only_counters_differ(before, after),
        )
        if wait is None:
            self.journal.post(snapshot.job.meta, kinds.RLJOB, of_change(before, after))
            self._log(snapshot, before, after)
        return RESYNC_SECONDS if wait is None else wait

    def _log(self, snapshot: JobSnapshot, before: RLJobStatus, after: RLJobStatus) -> None:
        if (before.phase, before.attempt) != (after.phase, after.attempt):
            told = {"job": str(snapshot.key), "attempt": after.attempt, "phase": after.phase}
            log.info("phase %s", after.phase, extra=told)

    def _next(self, snapshot: JobSnapshot, inputs: Inputs, decision: Decision) -> float:
        status = snapshot.job.status
        match decision:
            case Begin() | Complete() | Ended():
                return SOON_SECONDS
            case _:
                pass
        if inputs.again_after is not None:
            return inputs.again_after
        retry_at = parse_time(status.next_retry_time)
        if attempts.ended(status) and retry_at is not None and retry_at > self.now():
            return min(retry_at - self.now() + SOON_SECONDS, STALLED_SECONDS)
        return min(self.progress_seconds, 2.0) if status.attempt == 0 else self.progress_seconds


def _view(
    snapshot: JobSnapshot, spec: RLJobSpec, inputs: Inputs, now: float
) -> attempts.View:  # fmt: skip
    status = snapshot.job.status
    return attempts.View(
        status=status,
        lifecycle=spec.lifecycle,
        trainer=snapshot.current_trainer(),
        others_active=any(
            one.state == "Active" and one.attempt < status.attempt for one in snapshot.trainers
        ),
        pods=snapshot.trainer_pods(status.attempt),
        run=inputs.reading.run,
        run_known=inputs.reading.known,
        may_begin=inputs.may_begin,
        now=now,
    )
