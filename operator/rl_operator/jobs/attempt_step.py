"""The next step of a job's attempts: what decides it, and whether cached reads may decide it."""

from __future__ import annotations

from dataclasses import dataclass

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.apply.applier import Made
from rl_operator.attempts import lifecycle
from rl_operator.jobs.inputs import Inputs
from rl_operator.kube.conditions import find, is_true
from rl_operator.kueue.gate import Gate
from rl_operator.pools.status import LATE, TIMED_OUT
from rl_operator.state.attempt_records import is_at_rest, is_halting, suspends
from rl_operator.state.decisions import AttemptContext, Begin, Decision, Wait
from rl_operator.state.snapshot import Job, JobSnapshot
from rl_operator.status.status_input import StatusInput


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStep:
    """What happens next to a job's attempts, and why."""

    inputs: Inputs
    context: AttemptContext
    decision: Decision

    @classmethod
    def decide(
        cls, snapshot: JobSnapshot, spec: RLJobSpec, inputs: Inputs, now: float
    ) -> AttemptStep:
        """Decide by a spec as the job's queue grants it."""
        context = build_context(snapshot, spec, inputs, now)
        return cls(inputs=inputs, context=context, decision=lifecycle.decide(context))

    def status_input(
        self, snapshot: JobSnapshot, gate: Gate, made: Made, now: float
    ) -> StatusInput:
        """What the job's status is computed from once the step is applied."""
        return StatusInput(
            snapshot=snapshot,
            reading=self.inputs.reading,
            bucket=self.inputs.bucket,
            decision=self.decision,
            stall=made.stall or self.inputs.stall or gate.stall,
            checking=self.inputs.checking,
            shortfalls=self.inputs.shortfalls,
            memory=self.inputs.memory,
            hold=gate.hold,
            blocked_reason=made.blocked_reason,
            now=now,
        )


def rests_on_absence(job: Job) -> bool:
    """Whether what is reported or done next requires that something does not exist any more."""
    stops = job.suspended and not is_true(job.status.conditions, "Suspended")
    # Resumed: its trainer may have been deleted a moment ago, and only the record tells why.
    resumes = suspends(job.status) and not job.suspended
    return stops or resumes or job.finished or job.meta.deleted_at is not None


def may_use_cache(decision: Decision, *, queued: bool) -> bool:
    """Whether a decision may rest on cached reads.

    The first attempt may: its number is written only to the job as it was observed, and a job that
    has never had an attempt has no trainer that might still exist. Not so if a queue admits it.
    """
    first = isinstance(decision, Begin) and decision.attempt == 1 and not queued
    return first or isinstance(decision, Wait)


def build_context(
    snapshot: JobSnapshot, spec: RLJobSpec, inputs: Inputs, now: float
) -> AttemptContext:
    """Collect what decides about a job's attempts."""
    status = snapshot.job.status
    return AttemptContext(
        status=status,
        lifecycle=spec.lifecycle,
        wishes=spec.trainer,
        trainer=snapshot.current_trainer(),
        others_active=_others_active(snapshot, now),
        pods=snapshot.trainer_pods(status.attempt),
        job=snapshot.job.meta.uid,
        run=inputs.reading.run,
        run_known=inputs.reading.known,
        may_begin=inputs.may_begin,
        renderable=not inputs.unusable,
        samplers_ready=not inputs.shortfalls,
        suspend=snapshot.job.suspended,
        halting=is_halting(snapshot),
        stop=snapshot.job.basics.stop and is_at_rest(snapshot, status),
        late=_late(snapshot) if spec.weight_sync.on_timeout == "Fail" else "",
        now=now,
        store_now=inputs.reading.now or now,
    )


def _others_active(snapshot: JobSnapshot, now: float) -> bool:
    attempt = snapshot.job.status.attempt
    objects = any(
        trainer.state == "Active" and trainer.attempt < attempt for trainer in snapshot.trainers
    )
    earlier = (pod for pod in snapshot.pods if 0 < pod.attempt < attempt)
    return objects or any(lifecycle.lingers(pod, now) for pod in earlier)


def _late(snapshot: JobSnapshot) -> str:
    """What a pool says of a sampler whose delay makes the run fail; empty: there is none."""
    for pool in snapshot.pools:
        condition = find(pool.status.conditions, LATE)
        if condition is not None and condition.reason == TIMED_OUT:
            return f"SamplerPool {pool.meta.name}: {condition.message}"
    return ""
