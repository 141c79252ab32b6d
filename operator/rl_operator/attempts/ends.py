"""Decides how an attempt ended: by a deadline or by itself, whether it counts, when to retry."""

from __future__ import annotations

import math
from dataclasses import replace

from rl_contracts.documents.run import Outcome
from rl_contracts.spec.status import FailureStatus
from rl_operator.attempts import absence, sizing
from rl_operator.attempts.trainer_end import (
    Action,
    container_of,
    describe_end,
    policy_action,
    signal_of,
)
from rl_operator.kube.redact import redacted
from rl_operator.kube.timestamps import format_time, parse_time
from rl_operator.state.attempt_records import (
    REFUSED_EXIT_CODE,
    REPLACED_EXIT_CODES,
    current,
    replicas,
)
from rl_operator.state.decisions import AttemptContext, Decision, Ended, Wait
from rl_operator.state.pod import Pod
from rl_operator.state.trainer_job import TrainerJob

SETTLED_SECONDS = 600.0
"""After an attempt of at least this length the backoff of ignored failures starts over."""
REFUSED_RETRY_SECONDS = 30.0
SIDECAR_SECONDS = 60.0
"""How long other containers of a pod may run on once the trainer's process has ended."""
NEVER_CREATED = "The pod was never created: check that training-operator is running."
NEVER_STARTED = "The pod was created and never started."


def seconds_left(context: AttemptContext) -> float:
    """Seconds until a deadline ends a running trainer; inf without one."""
    pod = context.pods[-1] if context.pods else None
    left = min(_active_seconds_left(context), absence.next_lost(context)[0])
    if pod is None or pod.started_at is None:
        return left
    limit = context.lifecycle.progress_deadline_seconds
    return min(left, _progress_at(context, pod.started_at) + limit - context.store_now)


def _active_seconds_left(context: AttemptContext) -> float:
    limit, since = (
        context.lifecycle.active_deadline_seconds,
        parse_time(context.status.active_since),
    )
    return math.inf if limit is None or since is None else since + limit - context.now


def _progress_at(context: AttemptContext, started_at: float) -> float:
    return max(started_at, context.run.progress_at if context.run else 0.0)


def overdue(context: AttemptContext) -> Ended | None:
    """The end of a job that was active for longer than ``activeDeadlineSeconds``, if it was."""
    if _active_seconds_left(context) >= 0:
        return None
    limit = context.lifecycle.active_deadline_seconds
    message = f"The job was active for more than lifecycle.activeDeadlineSeconds = {limit} s."
    return end(context, "DeadlineExceeded", message, action="FailJob")


def as_left(context: AttemptContext, trainer: TrainerJob, outcome: Outcome | None) -> TrainerJob:
    """The job object with the state that its trainer's exit code implies.

    Another container may keep the pod, and so the job object, active forever. A run that has
    succeeded is left to ``lifecycle.decide``, which waits for the trainer's heartbeats to stop.
    """
    pod = context.pods[-1] if context.pods else None
    container = container_of(pod)
    if pod is None or container is None or container.ended_at is None or not pod.live:
        return trainer
    succeeded = outcome is not None and outcome.kind == "Succeeded"
    if (
        trainer.state != "Active"
        or succeeded
        or context.now - container.ended_at <= SIDECAR_SECONDS
    ):
        return trainer
    return replace(trainer, state="Failed" if container.exit_code else "Succeeded")


def conclude(context: AttemptContext, trainer: TrainerJob, outcome: Outcome | None) -> Decision:
    """How an attempt ended whose job object is no longer active."""
    pod = context.pods[-1] if context.pods else None
    container = container_of(pod)
    exit_code = container.exit_code if container else None
    if not context.run_known and (trainer.state == "Succeeded" or exit_code == REFUSED_EXIT_CODE):
        return Wait(why="Outcome")
    by_refusal = exit_code in (REFUSED_EXIT_CODE, None) or trainer.state == "Succeeded"
    if outcome is not None and outcome.kind == "Refused" and by_refusal:
        where = f"{outcome.field} = {outcome.value!r}: " if outcome.field else ""
        message = redacted(f"{where}{outcome.message} {outcome.remedy}".strip())
        return _refused(context, pod, outcome.reason, message)
    if trainer.state == "Succeeded":
        message = "The trainer ended with exit code 0 and left no outcome in the run document."
        return end(context, "ExitedWithoutOutcome", message, exit_code=exit_code)
    # A pod that is gone without an end was deleted by force, or with its node.
    spared = exit_code in REPLACED_EXIT_CODES or (pod is None and outcome is None)
    otherwise: Action = "Ignore" if spared else "Restart"
    action = _action(context, pod, exit_code=exit_code, otherwise=otherwise)
    if outcome is not None and outcome.kind == "Failed" and exit_code in (1, None):
        message = redacted(outcome.message)
        return _failed(context, outcome.reason, message, exit_code=exit_code, action=action)
    reason, message = describe_end(pod, container)
    if reason == "OOMKilled" and context.run is not None:
        message = f"The trainer's phase: {context.run.phase}. {message}"
    # Exit code 2 marks a refusal; an end without a recorded refusal must not carry it.
    code = None if exit_code == REFUSED_EXIT_CODE else exit_code
    return _failed(context, reason, message or trainer.message, exit_code=code, action=action)


def missed(context: AttemptContext, trainer: TrainerJob) -> Decision | None:
    """The end of an attempt that has missed a deadline; None while it is in time."""
    ended = _lost(context, trainer) or _smaller(context, trainer)
    if ended is not None:
        return ended
    pod = context.pods[-1] if context.pods else None
    if pod is None or pod.phase == "Pending":
        in_time = absence.seconds_left(context, trainer) >= 0
        return None if in_time else _pending(context, trainer, pod)
    if pod.started_at is None:
        return None  # it has ended; its job object follows
    limit = context.lifecycle.progress_deadline_seconds
    if not context.run_known or (context.run is not None and context.run.outcome is not None):
        return None
    if context.store_now - _progress_at(context, pod.started_at) <= limit:
        return None
    doing = context.run.phase if context.run else "none; it has not opened the run"
    message = (
        f"No progress for {limit} s (lifecycle.progressDeadlineSeconds). The trainer's phase: "
        f"{doing}."
    )
    return _failed(context, "ProgressDeadlineExceeded", message)


def _lost(context: AttemptContext, trainer: TrainerJob) -> Decision | None:
    left, pod = absence.next_lost(context)
    if pod is None or left >= 0:
        return None
    run = context.run
    if run is not None and run.outcome is not None and absence.is_held(context):
        return conclude(context, trainer, run.outcome)
    action = _action(context, pod, exit_code=None, otherwise="Ignore")
    cause = "its node does not answer. Repair or remove the node."
    if pod.phase == "Pending" and pod.scheduled_at is None:
        cause = "it has no node, so a finalizer keeps it. Remove that from metadata.finalizers."
    message = (
        f"Pod {pod.name} is being deleted, and still exists a minute after the end of its grace "
        f"period: {cause}"
    )
    if action == "Ignore":
        message += " This does not count as a failure."
    return _failed(context, "PodMissing", message, action=action)


def _pending(context: AttemptContext, trainer: TrainerJob, pod: Pod | None) -> Ended:
    limit = context.lifecycle.pending_deadline_seconds
    if pod is None and absence.seconds_since_seen(context, trainer) is not None:
        message = f"{describe_end(None, None)[1]} No other pod replaced it within {limit} s."
        action = _action(context, None, exit_code=None, otherwise="Ignore")
        return _failed(context, "PodMissing", message, action=action)
    why = (pod.trouble() or NEVER_STARTED) if pod else NEVER_CREATED
    message = f"The trainer's pod did not run within {limit} s. {why}"
    return end(context, "PendingDeadlineExceeded", message)


def _smaller(context: AttemptContext, trainer: TrainerJob) -> Ended | None:
    size = replicas(context.wishes, context.status)
    fitted = sizing.fitting(context.wishes, context.pods, size=size)
    seconds = context.lifecycle.pending_deadline_seconds * sizing.WAIT_SHARE
    if fitted is None or context.now - trainer.created_at <= seconds:
        return None
    why = next(pod.unscheduled for pod in context.pods if pod.unscheduled)
    message = (
        f"{size} replicas did not fit on the nodes within {seconds:.0f} s; the next attempt has "
        f"{fitted} (trainer.elastic). {why}"
    )
    return replace(end(context, sizing.DOES_NOT_FIT, message, action="Ignore"), fitted=fitted)


def _refused(context: AttemptContext, pod: Pod | None, reason: str, message: str) -> Ended:
    """The end of an attempt that refused its input, unless a policy rule makes it a failure.

    Without a rule it is retried and not counted, as after ``Ignore``.
    """
    code = REFUSED_EXIT_CODE
    action = _action(context, pod, exit_code=code, otherwise="Ignore")
    refused = action == "Ignore"
    return end(context, reason, message, exit_code=code, action=action, refused=refused)


def _action(
    context: AttemptContext,
    pod: Pod | None,
    *,
    exit_code: int | None,
    otherwise: Action = "Restart",
) -> Action:
    return policy_action(
        context.lifecycle.failure_policy,
        exit_code=exit_code,
        conditions=pod.conditions if pod else (),
        otherwise=otherwise,
    )


def _failed(
    context: AttemptContext,
    reason: str,
    message: str,
    *,
    exit_code: int | None = None,
    action: Action = "Restart",
) -> Ended:
    """The end of an active attempt: the first ``elastic.maxRestarts`` of them do not count."""
    elastic = context.wishes.elastic
    left = elastic.max_restarts - context.status.elastic_restarts if elastic is not None else 0
    spared = action == "Restart" and left > 0
    ended = end(
        context, reason, message, exit_code=exit_code, action="Ignore" if spared else action
    )
    return replace(ended, spared=spared)


def end(
    context: AttemptContext,
    reason: str,
    message: str,
    *,
    exit_code: int | None = None,
    action: Action = "Restart",
    refused: bool = False,
) -> Ended:
    """The end of the current attempt, as the trainer's pod shows it.

    Args:
        context: of the attempt.
        reason: CamelCase word for conditions.
        message: cause and remedy.
        exit_code: of the trainer's container, where it is meaningful.
        action: of the failure policy.
        refused: the trainer refused its input: not counted, and retried.
    """
    counts = not refused and action != "Ignore"
    failures = context.status.failures + counts
    container = container_of(context.pods[-1]) if context.pods else None
    failure = FailureStatus(
        attempt=context.status.attempt,
        reason=reason[:256],
        message=message[:1024],
        pod=context.pods[-1].name if context.pods else "",
        container=container.name if container and container.exit_code is not None else "",
        exit_code=exit_code,
        signal=signal_of(container) or None if container else None,
        time=format_time(context.now),
    )
    return Ended(
        failure=failure,
        counts=counts,
        ignored=not refused and action == "Ignore",
        retry_at=context.now + _pause(context, failures, refused=refused, ignored=not counts),
        final=action == "FailJob" or (counts and failures > context.lifecycle.backoff_limit),
    )


def _pause(context: AttemptContext, failures: int, *, refused: bool, ignored: bool) -> float:
    """Seconds until the next attempt."""
    if refused:
        return REFUSED_RETRY_SECONDS
    doublings = failures - 1
    if ignored:
        record = current(context.status)
        began = parse_time(record.start_time) if record else None
        # The failure of a long attempt is not related to those before it.
        lasted = began is not None and context.now - began > SETTLED_SECONDS
        doublings = 0 if lasted else context.status.ignored_failures
    base, most = (
        context.lifecycle.restart_backoff_seconds,
        context.lifecycle.restart_backoff_max_seconds,
    )
    return min(base * 2.0 ** min(max(doublings, 0), 20), float(most))
