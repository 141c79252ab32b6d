"""What a job's next turn is decided by, and whether that must be what is there now."""

from __future__ import annotations

from rl_contracts.spec.resources import RLJobSpec
from rl_operator.attempts import lifecycle
from rl_operator.jobs.inputs import Inputs
from rl_operator.kube.conditions import find, is_true
from rl_operator.pools.status import LATE, TIMED_OUT
from rl_operator.state.decisions import AttemptContext, Begin, Decision, Wait
from rl_operator.state.snapshot import Job, JobSnapshot


def must_be_live(job: Job) -> bool:
    """Whether what is said or done next rests on that something is not there any more."""
    stops = job.suspended and not is_true(job.status.conditions, "Suspended")
    return stops or job.finished or job.meta.deleted_at is not None


def needs_no_proof(decision: Decision, *, queued: bool) -> bool:
    """Whether a decision may rest on what the watches have told.

    The first attempt may: its number is written only to the job as it was seen, and a job that has
    never had an attempt has no trainer that might still be there. Not so where a queue admits it.
    """
    first = isinstance(decision, Begin) and decision.attempt == 1 and not queued
    return first or isinstance(decision, Wait)


def _others_active(snapshot: JobSnapshot, now: float) -> bool:
    attempt = snapshot.job.status.attempt
    objects = any(
        trainer.state == "Active" and trainer.attempt < attempt for trainer in snapshot.trainers
    )
    earlier = (pod for pod in snapshot.pods if 0 < pod.attempt < attempt)
    return objects or any(lifecycle.lingers(pod, now) for pod in earlier)


def _late(snapshot: JobSnapshot) -> str:
    """What a pool says of a sampler for which the run is to fail; empty: there is none."""
    for pool in snapshot.pools:
        said = find(pool.status.conditions, LATE)
        if said is not None and said.reason == TIMED_OUT:
            return f"SamplerPool {pool.meta.name}: {said.message}"
    return ""


def build_context(
    snapshot: JobSnapshot, spec: RLJobSpec, inputs: Inputs, now: float
) -> AttemptContext:
    """What decides about a job's attempts."""
    status = snapshot.job.status
    return AttemptContext(
        status=status,
        lifecycle=spec.lifecycle,
        wishes=spec.trainer,
        trainer=snapshot.current_trainer(),
        others_active=_others_active(snapshot, now),
        pods=snapshot.trainer_pods(status.attempt),
        run=inputs.reading.run,
        run_known=inputs.reading.known,
        may_begin=inputs.may_begin,
        renderable=not inputs.unusable,
        samplers_ready=not inputs.shortfalls,
        suspend=snapshot.job.suspended,
        late=_late(snapshot) if spec.weight_sync.on_timeout == "Fail" else "",
        now=now,
        store_now=inputs.reading.now or now,
    )
