"""Computes the status of an RLJob: its fields, its headline and the conditions of its parts."""

from __future__ import annotations

from rl_contracts.spec.status import Condition, Phase, RLJobStatus
from rl_operator.kube.conditions import ConditionUpdate, Truth, find, merged
from rl_operator.kueue import admission
from rl_operator.state import attempt_records
from rl_operator.state.decisions import Complete, Decision, Ended, Stopped
from rl_operator.status import pool_wait
from rl_operator.status.component_conditions import (
    policy,
    reachable,
    samplers_ready,
    trainer_ready,
)
from rl_operator.status.freshness import rollouts_fresh
from rl_operator.status.headline import RESUME_REMEDY, Headline, headline
from rl_operator.status.job_status import fields
from rl_operator.status.learning_signal import learning_signal
from rl_operator.status.scorer_outage import scorer_outage
from rl_operator.status.status_input import StatusInput
from rl_operator.validation import device_memory


def compute(status_input: StatusInput) -> RLJobStatus:
    """The whole status."""
    after = fields(status_input)
    if status_input.snapshot.job.finished:
        return _finished(status_input, after)
    top = headline(status_input, after)
    updates = [
        *_summary(top),
        *_suspended(status_input, after),
        *_components(status_input, after),
        *_outcome(status_input.decision),
    ]
    conditions = _merged(status_input, updates)
    return after.model_copy(update={"phase": top.phase, "conditions": conditions})


def _merged(status_input: StatusInput, updates: list[ConditionUpdate]) -> list[Condition]:
    job = status_input.snapshot.job
    return merged(
        job.status.conditions, updates, generation=job.meta.generation, now=status_input.now
    )


def _finished(status_input: StatusInput, after: RLJobStatus) -> RLJobStatus:
    # Conditions stay as they were at the end; only their generation and a deletion show.
    before = status_input.snapshot.job.status
    deleting = status_input.snapshot.job.meta.deleted_at is not None
    phase: Phase = "Terminating" if deleting else after.phase
    kept = [ConditionUpdate.unchanged(condition) for condition in before.conditions]
    return after.model_copy(
        update={
            "phase": phase,
            "progress": before.progress,
            "weights": before.weights,
            "conditions": _merged(status_input, kept),
        }
    )


def _summary(top: Headline) -> list[ConditionUpdate]:
    ready: Truth = "True" if top.state == "Ready" else "False"
    updates = [ConditionUpdate("Ready", ready, top.reason, top.message)]
    if top.state != "Ready":
        updates.append(ConditionUpdate(top.state, "True", top.reason, top.message))
    return updates


def _components(status_input: StatusInput, after: RLJobStatus) -> list[ConditionUpdate]:
    reading = status_input.reading
    stores = [
        reachable("StorageReachable", reading.bucket),
        reachable("StateStoreReachable", reading.store),
    ]
    queue = admission.conditions(status_input.snapshot)
    trainer = trainer_ready(status_input, after)
    if status_input.unsampled:  # there are neither samplers nor policies for them
        return [
            *queue,
            *_memory_fits(status_input),
            trainer,
            *learning_signal(status_input),
            *stores,
        ]
    return [
        *pool_wait.conditions(status_input, after),
        *queue,
        *_memory_fits(status_input),
        trainer,
        samplers_ready(status_input, after),
        *policy(status_input),
        *rollouts_fresh(status_input),
        *learning_signal(status_input),
        *scorer_outage(status_input),
        *stores,
    ]


def _memory_fits(status_input: StatusInput) -> list[ConditionUpdate]:
    """Kept as it was while it is not asked for: from the first attempt on."""
    if status_input.memory is not None:
        return [status_input.memory.condition]
    before = find(status_input.snapshot.job.status.conditions, device_memory.KIND)
    return [ConditionUpdate.unchanged(before)] if before else []


def _suspended(status_input: StatusInput, after: RLJobStatus) -> list[ConditionUpdate]:
    kind = "Suspended"
    job = status_input.snapshot.job
    if job.suspended and not attempt_records.is_over(after):
        if not attempt_records.is_at_rest(status_input.snapshot, after):
            return [ConditionUpdate(kind, "False", "Stopping", "The job's pods are terminating.")]
        if job.basics.stop:
            return [ConditionUpdate(kind, "True", "Stopping", "No pod runs; the run ends now.")]
        if job.basics.suspend:
            return [ConditionUpdate(kind, "True", "Suspended", f"No pod runs. {RESUME_REMEDY}")]
        message = "No pod runs while the job's queue does not admit it; see Admitted."
        return [ConditionUpdate(kind, "True", "NotAdmitted", message)]
    if find(job.status.conditions, kind) is None:
        return []
    if job.basics.stop:
        return [ConditionUpdate(kind, "False", "Stopped", "The run has ended for good.")]
    return [ConditionUpdate(kind, "False", "Resumed", "The job may have pods again.")]


def _outcome(decision: Decision | None) -> list[ConditionUpdate]:
    match decision:
        case Complete(outcome=outcome):
            message = outcome.message or "The run has succeeded."
            return [ConditionUpdate("Complete", "True", "Succeeded", message)]
        case Stopped(message=message):
            return [ConditionUpdate("Failed", "True", "Stopped", message)]
        case Ended(failure=failure, final=True):
            message = failure.message or f"Attempt {failure.attempt} was the last one allowed."
            return [ConditionUpdate("Failed", "True", failure.reason, message)]
        case _:
            return []
