"""Reconciles one RLJob: observe, decide, plan, apply, tell."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.status import RLJobStatus
from rl_operator import (
    attempt_records,
    attempts,
    deletion,
    job_conditions,
    kinds,
    logs,
    observe,
    patience,
    pool_ref,
    standstill,
    stillness,
)
from rl_operator.admission import Hold
from rl_operator.api_errors import ApiHookError
from rl_operator.apply import Applier, Made
from rl_operator.cluster import Cluster
from rl_operator.conditions import is_true
from rl_operator.decisions import Begin, Complete, Decision, Ended, Halted, View, Wait
from rl_operator.desired import job as desired
from rl_operator.desired import objects
from rl_operator.events import Journal, of_actions, of_change
from rl_operator.first_words import FirstWords
from rl_operator.gate import Gate
from rl_operator.inputs import Inputs, InputsReader
from rl_operator.kinds import Key
from rl_operator.looks import Looks
from rl_operator.made_from import is_settled, made_from
from rl_operator.pace import Pace
from rl_operator.perform import perform
from rl_operator.plan import Wanted
from rl_operator.queueing import Queueing
from rl_operator.settings import Images
from rl_operator.shared_pool import SharedPools
from rl_operator.situation import Situation, Stall
from rl_operator.snapshot import JobSnapshot
from rl_operator.status_writer import StatusWriter
from rl_operator.stillness import Stillness
from rl_operator.timestamps import parse_time
from rl_operator.view import must_be_live, needs_no_proof, view_of

log = logging.getLogger(__name__)

RESYNC_SECONDS = 600.0
SOON_SECONDS = 0.05
STALLED_SECONDS = 10.0
"""Between looks at a cause that no event tells of."""
HINDERED_LOOKS = 2.0
"""Looks of a job at work that may go by before a webhook is asked again: it may be slow to fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReconciler:
    """Brings RLJobs to what they declare; holds nothing that matters after a crash."""

    cluster: Cluster
    applier: Applier
    statuses: StatusWriter
    first_words: FirstWords
    inputs: InputsReader
    queueing: Queueing
    journal: Journal
    images: Images
    progress_seconds: float
    pace: Pace
    looks: Looks
    stillness: Stillness
    wake: Callable[[Key], None]
    """Asks for another object to be reconciled."""
    now: Callable[[], float]
    """Seconds since 1970."""

    def reconcile(self, key: Key) -> float | None:
        """Reconcile one job; return after how many seconds to look again, if at all."""
        if self.stillness.holds(key):
            self.pace.saw(key, changed=False)
            return self.pace.wait(key)
        self.stillness.forget(key)
        snapshot, again = self._observe(key)
        if snapshot is None or snapshot.job.basics.elsewhere:
            self.inputs.forget(key)
            self.pace.forget(key)
            self.looks.forget(key)
            self.applier.forget(key)
            self.first_words.forget(key)
            return None
        logs.note(job=f"{key.namespace}/{key.name}", attempt=snapshot.job.status.attempt)
        snapshot, gate = self.queueing.look(snapshot)
        if again and must_be_live(snapshot.job):
            return self._look_live(key)
        if snapshot.job.meta.deleted_at is not None:
            return self._delete(snapshot)
        if snapshot.job.finished:
            return self._finished(snapshot)
        assert gate is not None
        if snapshot.job.spec is None:
            return self._stand(snapshot, gate)
        return self._advance(snapshot, snapshot.job.spec, gate, again=again)

    def _advance(
        self, snapshot: JobSnapshot, spec: RLJobSpec, gate: Gate, *, again: bool
    ) -> float | None:
        status, granted = snapshot.job.status, gate.spec
        assert granted is not None
        idle = spec.suspend and (status.attempt == 0 or attempt_records.ended(status))
        inputs = Inputs() if idle else self.inputs.read(snapshot, spec)
        if self._settle_finalizer(snapshot, spec, checked=inputs.checked):
            return SOON_SECONDS
        if inputs.checked and SharedPools(cluster=self.cluster).join(snapshot.job, spec):
            return SOON_SECONDS
        view = view_of(snapshot, granted, inputs, self.now())
        decision = attempts.decide(view)
        if again and not needs_no_proof(decision, queued=spec.scheduling.queued):
            return self._look_live(snapshot.key)  # a turn is decided by what is there now
        if isinstance(decision, Ended):
            inputs, view, decision = self._confirmed(snapshot, spec, granted)
        if inputs.unusable:
            made = self._stop(snapshot, gate)
        else:
            new = again and status.observed_generation < 0
            made = self._make(snapshot, granted, gate, inputs, decision, new=new)
            if made.done and again:
                snapshot = self._as_made(snapshot)
        stall = made.stall or inputs.stall or gate.stall
        self.queueing.tell(gate)
        situation = self._situation(
            snapshot,
            inputs=inputs,
            decision=decision,
            stall=stall,
            hold=gate.hold,
            hindered=made.hindered,
        )
        waited = self._tell(snapshot, situation)
        self._note_stillness(situation, view, rests=again and not made.done)
        if isinstance(decision, Begin):
            return self.reconcile(snapshot.key)  # its ordinal is written: its trainer follows
        if gate.stall is not None:
            return min(waited, STALLED_SECONDS)
        if made.hindered:
            return HINDERED_LOOKS * self.progress_seconds
        return min(waited, self._next(snapshot, inputs, decision))

    def _confirmed(
        self, snapshot: JobSnapshot, spec: RLJobSpec, granted: RLJobSpec
    ) -> tuple[Inputs, View, Decision]:
        """An attempt's end by what the stores say since: its outcome may just have come."""
        inputs = self.inputs.read(snapshot, spec, anew=True)
        view = view_of(snapshot, granted, inputs, self.now())
        decision = attempts.decide(view)
        if isinstance(decision, Ended) and not decision.counts and not decision.ignored:
            self.inputs.forget(snapshot.key)  # looked at anew before the next attempt
        return inputs, view, decision

    def _observe(self, key: Key) -> tuple[JobSnapshot | None, bool]:
        """What there is of a job, and whether that is what the watches have told."""
        found, again = self.looks.observe(
            key, lambda one: observe.job_snapshot(one, key, queues=self.queueing.enabled)
        )
        if found is None:
            return None, again
        return replace(found, job=self.first_words.recalled(key, found.job)), again

    def _look_live(self, key: Key) -> float | None:
        self.looks.changed(key)
        return self.reconcile(key)

    def _stand(self, snapshot: JobSnapshot, gate: Gate) -> float | None:
        """A job whose spec cannot be read goes on as it was, or is stopped."""
        decision = standstill.decide(snapshot)
        stall = Stall(reason="InvalidSpec", message=snapshot.job.spec_error)
        self._stop(snapshot, gate)
        self.queueing.tell(gate)
        situation = self._situation(snapshot, decision=decision, stall=stall, hold=gate.hold)
        waited = self._tell(snapshot, situation)
        if decision is not None:
            return SOON_SECONDS
        if must_be_live(snapshot.job):
            return STALLED_SECONDS
        return waited if waited < RESYNC_SECONDS else None

    def _stop(self, snapshot: JobSnapshot, gate: Gate) -> Made:
        """End what has to end of a job of which nothing can be made."""
        unwanted = standstill.unwanted(snapshot)
        if gate.drop is not None and gate.drop not in unwanted:
            unwanted.append(gate.drop)
        made = self.applier.make(
            snapshot.key,
            wanted=standstill.wanted(snapshot),
            unwanted=unwanted,
            observed=snapshot.children,
            owner_uid=snapshot.job.meta.uid,
        )
        self.journal.post(snapshot.job.meta, kinds.RLJOB, of_actions(made.done))
        return made

    def _make(
        self,
        snapshot: JobSnapshot,
        spec: RLJobSpec,
        gate: Gate,
        inputs: Inputs,
        decision: Decision,
        *,
        new: bool,
    ) -> Made:
        run_trainer = desired.runs_trainer(snapshot, decision)
        source = made_from(snapshot, gate, checked=inputs.checked, run_trainer=run_trainer)
        wanted, dropped = [], []
        if not self.applier.rests(snapshot.key, source):
            gone = objects.of_job_not_wanted(snapshot.job.meta, spec)
            dropped = observe.named(self.cluster, snapshot.key, gone)
            wanted = desired.wanted(
                snapshot,
                spec,
                checked=inputs.checked,
                run_trainer=run_trainer,
                images=self.images,
                admitted=gate.sizes,
            )
            if gate.make is not None and inputs.checked:
                wanted.append(Wanted(manifest=gate.make, keep_as_created=True))
        try:
            made = self.applier.make(
                snapshot.key,
                wanted=wanted,
                unwanted=[
                    *desired.unwanted(snapshot, spec),
                    *([gate.drop] if gate.drop else []),
                    *dropped,
                ],
                observed=snapshot.children,
                owner_uid=snapshot.job.meta.uid,
                new=new,
                settled=is_settled(snapshot, wanted),
            )
        except ApiHookError as error:
            log.warning("not made: %s", error)
            return Made(hindered=_hindered(error))
        if not made.done and made.stall is None:
            self.applier.rested(snapshot.key, source)
        self.journal.post(snapshot.job.meta, kinds.RLJOB, of_actions(made.done))
        return made

    def _as_made(self, snapshot: JobSnapshot) -> JobSnapshot:
        """With what was just made, so that one status tells of it, not the next one, too."""
        fresh, _ = self._observe(snapshot.key)
        if fresh is None:
            return snapshot
        return replace(snapshot, children=fresh.children, pools=fresh.pools)

    def _finished(self, snapshot: JobSnapshot) -> float:
        self.applier.make(
            snapshot.key,
            wanted=[],
            unwanted=desired.unwanted(snapshot, snapshot.job.spec),
            observed=snapshot.children,
            owner_uid=snapshot.job.meta.uid,
        )
        if snapshot.job.spec is not None:
            self._settle_finalizer(snapshot, snapshot.job.spec, checked=False)
        self.queueing.finish(snapshot)
        waited = self._tell(snapshot, self._situation(snapshot))
        return min(waited, self._expire(snapshot))

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
            perform(self.cluster, snapshot.key.namespace, action)
        if step.done:
            deletion.set_finalizer(self.cluster, snapshot.job.meta, present=False)
            return None
        self._tell(snapshot, self._situation(snapshot, stall=step.stall))
        return STALLED_SECONDS if step.stall else 2.0

    def _settle_finalizer(self, snapshot: JobSnapshot, spec: RLJobSpec, *, checked: bool) -> bool:
        written = deletion.may_have_data(snapshot, checked=checked)
        wanted = deletion.wants_finalizer(snapshot, spec, may_have_data=written)
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
        hold: Hold | None = None,
        hindered: str = "",
    ) -> Situation:
        seen = inputs or Inputs()
        return Situation(
            snapshot=snapshot,
            reading=seen.reading,
            bucket=seen.bucket,
            decision=decision,
            stall=stall,
            checking=seen.checking,
            lacks=seen.lacks,
            hold=hold,
            hindered=hindered,
            now=self.now(),
        )

    def _tell(self, snapshot: JobSnapshot, situation: Situation) -> float:
        """Write the status where it has changed; return how long a held-back change may wait."""
        key, after = snapshot.key, job_conditions.compute(situation)
        before = self.first_words.stored(key, snapshot.job)
        ready = is_true(after.conditions, "Ready")  # else a turn is near, and is waited for
        self.pace.saw(key, changed=before != after or not ready)
        kept = self.first_words.keep(key, snapshot.job, after)
        wait = kept or self.statuses.write(
            kinds.RLJOB,
            snapshot.job.meta,
            before=before,
            after=after,
            patience=patience.of_job(before, after),
        )
        is_told = wait is None or kept > 0
        if is_told and snapshot.job.status.observed_generation != after.observed_generation:
            self._wake_pools(snapshot)
        if wait is None:
            self.first_words.forget(key)
            self.journal.post(snapshot.job.meta, kinds.RLJOB, of_change(before, after))
            self._log(snapshot, before, after)
        return RESYNC_SECONDS if wait is None else wait

    def _note_stillness(self, situation: Situation, view: View, *, rests: bool) -> None:
        """Spare the looks by the clock that would find what this one has found."""
        snapshot, key = situation.snapshot, situation.snapshot.key
        if rests and self.pace.is_quiet(key):
            seconds = min(self.applier.rest_seconds(key), stillness.of_job(situation, view))
            self.stillness.note(key, snapshot.job, situation.reading, seconds=seconds)

    def _wake_pools(self, snapshot: JobSnapshot) -> None:
        named = pool_ref.of(snapshot.job.spec)
        for pool in {*(one.meta.name for one in snapshot.pools), *([named] if named else [])}:
            self.wake(Key(kinds.SAMPLER_POOL.name, snapshot.key.namespace, pool))

    def _log(self, snapshot: JobSnapshot, before: RLJobStatus, after: RLJobStatus) -> None:
        if (before.phase, before.attempt) != (after.phase, after.attempt):
            logs.note(attempt=after.attempt)
            log.info("phase %s", after.phase, extra={"phase": after.phase})

    def _next(self, snapshot: JobSnapshot, inputs: Inputs, decision: Decision) -> float:
        status = snapshot.job.status
        match decision:
            case Complete() | Ended() | Halted():
                return SOON_SECONDS
            case Wait(why="Suspended"):
                # Pods that go and a queue's word are events; what is looked at may say when.
                held = snapshot.job.held and inputs.again_after is not None
                return (inputs.again_after if held else None) or RESYNC_SECONDS
            case _:
                pass
        if inputs.again_after is not None:
            return inputs.again_after
        retry_at = parse_time(status.next_retry_time)
        if attempt_records.ended(status) and retry_at is not None and retry_at > self.now():
            return min(retry_at - self.now() + SOON_SECONDS, STALLED_SECONDS)
        pace = self.pace
        return pace.start(snapshot.key) if status.attempt == 0 else pace.wait(snapshot.key)


def _hindered(error: ApiHookError) -> str:
    kind, name = error.doing.partition("?")[0].rsplit("/", 2)[1:]
    return f"{kind}/{name} cannot be written for now, and is tried again: {error.message}"
