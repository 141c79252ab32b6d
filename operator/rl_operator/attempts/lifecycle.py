"""Decides about trainer attempts: when one begins, when it is retried, when the job is over.

The number of an attempt is written to the status before its job object is created, and an attempt
has ended once its record or ``lastFailure`` says so. So a crash of the operator at any point
neither skips nor repeats an attempt.
"""

from __future__ import annotations

from rl_contracts.documents.run import Outcome
from rl_contracts.spec.status import RLJobStatus
from rl_operator.attempts import ends, sizing
from rl_operator.attempts.ends import REFUSED_RETRY_SECONDS
from rl_operator.kube.timestamps import parse_time
from rl_operator.state.attempt_records import ended, halted, refused
from rl_operator.state.decisions import (
    AttemptContext,
    Begin,
    Complete,
    Decision,
    Halted,
    Stopped,
    Wait,
)
from rl_operator.state.pod import Pod

SILENT_SECONDS = 60.0
"""A trainer that has recorded success and sends no heartbeat for this long counts as ended."""


def decide(context: AttemptContext) -> Decision:
    """The next step of a job that is not over."""
    outcome = context.run.outcome if context.run else None
    if outcome is not None and outcome.kind == "Succeeded" and _gone(context):
        return Complete(outcome=outcome)
    if context.suspend or context.halting:
        return _suspend(context, outcome)
    overdue = ends.overdue(context)
    if overdue is not None:
        return overdue
    if context.status.attempt == 0:
        return _begin(context) if context.may_begin else Wait(why="Inputs")
    if ended(context.status):
        return _after_end(context)
    if context.late:
        message = f"weightSync.onTimeout is Fail. {context.late}"
        return ends.end(context, "WeightSyncTimeout", message, action="FailJob")
    if context.trainer is None:
        return Wait(why="Running")
    trainer = ends.as_left(context, context.trainer, outcome)
    if trainer.state == "Active":
        return ends.missed(context, trainer) or Wait(why="Running")
    return ends.conclude(context, trainer, outcome)


def lingers(pod: Pod, now: float) -> bool:
    """Whether to wait for the pod of a stopped attempt."""
    return pod.remains and (pod.overdue_at is None or now <= pod.overdue_at)


def _suspend(context: AttemptContext, outcome: Outcome | None) -> Decision:
    if context.status.attempt == 0 or ended(context.status):
        if context.stop:
            return Stopped(message=stop_message(context.status))
        return Wait(why="Suspended")
    if context.trainer is not None and context.trainer.state != "Active":
        return ends.conclude(
            context, context.trainer, outcome
        )  # it had ended before it was stopped
    waits = context.suspend and bool(context.pods)
    if (
        context.trainer is not None
        or waits
        or any(lingers(pod, context.now) for pod in context.pods)
    ):
        return Wait(why="Stopping")
    return Halted(attempt=context.status.attempt)


def stop_message(status: RLJobStatus) -> str:
    """What remains of a run that was stopped, by the last status that has its progress."""
    progress = status.progress
    if not status.attempt:
        return "spec.stop ended the job before its first attempt."
    steps = f" of {progress.steps}" if progress.steps else ""
    return (
        f"spec.stop ended the run at step {progress.step}{steps}. Its last checkpoint stays: a new "
        "job whose runId names the run goes on from there."
    )


def _gone(context: AttemptContext) -> bool:
    if context.trainer is None or context.trainer.state != "Active":
        return True
    assert context.run is not None
    return (
        context.store_now - max(context.run.heartbeat_at, context.run.progress_at) > SILENT_SECONDS
    )


def _after_end(context: AttemptContext) -> Decision:
    retry_at = parse_time(context.status.next_retry_time)
    # A time further away than the longest backoff was set by a clock that has been corrected since.
    longest = max(context.lifecycle.restart_backoff_max_seconds, REFUSED_RETRY_SECONDS)
    if retry_at is not None and 0 < retry_at - context.now <= longest:
        return Wait(why="Backoff")
    active = context.trainer is not None and context.trainer.state == "Active"
    if context.others_active or active or any(lingers(pod, context.now) for pod in context.pods):
        return Wait(why="Stopping")
    if not context.renderable or (refused(context.status) and not context.may_begin):
        return Wait(why="Inputs")
    if halted(context.status) and not context.samplers_ready:
        return Wait(why="Samplers")
    return _begin(context)


def _begin(context: AttemptContext) -> Begin:
    size = sizing.of_next(context.wishes, context.status)
    return Begin(attempt=context.newest_attempt + 1, replicas=size)
