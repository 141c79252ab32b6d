"""How an attempt ends: by its deadlines or by itself, whether that counts, and the pause then."""

from __future__ import annotations

import math
from dataclasses import replace

from rl_contracts.documents.run import Outcome
from rl_contracts.spec.status import FailureStatus
from rl_operator.attempts import failure_policy, sizing
from rl_operator.attempts.failure_policy import Action
from rl_operator.attempts.trainer_end import container_of, describe_end, signal_of
from rl_operator.kube.redact import scrubbed
from rl_operator.kube.timestamps import format_time, parse_time
from rl_operator.state.attempt_records import REFUSED_EXIT_CODE, current
from rl_operator.state.decisions import Decision, Ended, View, Wait
from rl_operator.state.pod import Pod
from rl_operator.state.snapshot import TrainerJob

SETTLED_SECONDS = 600.0
"""After an attempt of so long the pauses of ignored failures begin anew."""
REFUSED_RETRY_SECONDS = 30.0
SIDECAR_SECONDS = 60.0
"""Other containers of a pod may go on for so long once the trainer's process has ended."""
NEVER_CREATED = "The pod was never created: see whether training-operator is at work."
NEVER_STARTED = "The pod was created, and never started."


def seconds_left(view: View) -> float:
    """Until the clock alone would decide otherwise about a trainer that runs; inf: never."""
    pod = view.pods[-1] if view.pods else None
    left = _active_seconds_left(view)
    if pod is None or pod.started_at is None:
        return left
    limit = view.lifecycle.progress_deadline_seconds
    return min(left, _progress_at(view, pod.started_at) + limit - view.store_now)


def _active_seconds_left(view: View) -> float:
    limit, since = view.lifecycle.active_deadline_seconds, parse_time(view.status.active_since)
    return math.inf if limit is None or since is None else since + limit - view.now


def _progress_at(view: View, started_at: float) -> float:
    return max(started_at, view.run.progress_at if view.run else 0.0)


def overdue(view: View) -> Ended | None:
    """The end of a job that was active for too long."""
    if _active_seconds_left(view) >= 0:
        return None
    limit = view.lifecycle.active_deadline_seconds
    message = f"The job was active for more than lifecycle.activeDeadlineSeconds, {limit} s."
    return end(view, "DeadlineExceeded", message, action="FailJob")


def as_left(view: View, trainer: TrainerJob, outcome: Outcome | None) -> TrainerJob:
    """The job object as its trainer has left it: another container may keep a pod for ever.

    Of a run that has succeeded its silence tells.
    """
    pod = view.pods[-1] if view.pods else None
    container = container_of(pod)
    if pod is None or container is None or container.ended_at is None or not pod.live:
        return trainer
    succeeded = outcome is not None and outcome.kind == "Succeeded"
    if trainer.state != "Active" or succeeded or view.now - container.ended_at <= SIDECAR_SECONDS:
        return trainer
    return replace(trainer, state="Failed" if container.exit_code else "Succeeded")


def conclude(view: View, trainer: TrainerJob, outcome: Outcome | None) -> Decision:
    """How an attempt has ended whose job object is not active any more."""
    pod = view.pods[-1] if view.pods else None
    container = container_of(pod)
    exit_code = container.exit_code if container else None
    if not view.run_known and (trainer.state == "Succeeded" or exit_code == REFUSED_EXIT_CODE):
        return Wait(why="Outcome")
    by_refusal = exit_code in (REFUSED_EXIT_CODE, None) or trainer.state == "Succeeded"
    if outcome is not None and outcome.kind == "Refused" and by_refusal:
        where = f"{outcome.field} = {outcome.value!r}: " if outcome.field else ""
        message = scrubbed(f"{where}{outcome.message} {outcome.remedy}".strip())
        return _refused(view, pod, outcome.reason, message)
    if trainer.state == "Succeeded":
        message = "The trainer ended with exit code 0 and left no outcome in the run document."
        return end(view, "ExitedWithoutOutcome", message, exit_code=exit_code)
    action = _action(view, pod, exit_code=exit_code)
    if outcome is not None and outcome.kind == "Failed" and exit_code in (1, None):
        message = scrubbed(outcome.message)
        return _failed(view, outcome.reason, message, exit_code=exit_code, action=action)
    reason, message = describe_end(pod, container)
    # Exit code 2 is the mark of a refusal; an end without one must not carry it.
    code = None if exit_code == REFUSED_EXIT_CODE else exit_code
    return _failed(view, reason, message or trainer.message, exit_code=code, action=action)


def missed(view: View, trainer: TrainerJob) -> Decision | None:
    """The end of an attempt that has missed a deadline; None while it is in time."""
    smaller = _smaller(view, trainer)
    if smaller is not None:
        return smaller
    pod = view.pods[-1] if view.pods else None
    if pod is None or pod.phase == "Pending":
        limit = view.lifecycle.pending_deadline_seconds
        since = pod.created_at if pod else trainer.created_at
        if view.now - since <= limit:
            return None
        why = (pod.trouble() or NEVER_STARTED) if pod else NEVER_CREATED
        message = f"The trainer's pod did not run within {limit} s. {why}"
        return end(view, "PendingDeadlineExceeded", message)
    if pod.started_at is None:
        return None  # it has ended; its job object is about to say so
    limit = view.lifecycle.progress_deadline_seconds
    if not view.run_known or (view.run is not None and view.run.outcome is not None):
        return None
    if view.store_now - _progress_at(view, pod.started_at) <= limit:
        return None
    doing = view.run.phase if view.run else "nothing: it has not taken the run"
    message = f"No step, evaluation or publication for {limit} s; the trainer says: {doing}."
    return _failed(view, "ProgressDeadlineExceeded", message)


def _smaller(view: View, trainer: TrainerJob) -> Ended | None:
    size = sizing.of_attempt(view.wishes, view.status)
    fitted = sizing.fitting(view.wishes, view.pods, size=size)
    seconds = view.lifecycle.pending_deadline_seconds * sizing.WAIT_SHARE
    if fitted is None or view.now - trainer.created_at <= seconds:
        return None
    why = next(pod.unscheduled for pod in view.pods if pod.unscheduled)
    message = (
        f"{size} replicas did not fit on the nodes within {seconds:.0f} s; the next attempt has "
        f"{fitted} (trainer.elastic). {why}"
    )
    return replace(end(view, sizing.DOES_NOT_FIT, message, action="Ignore"), fitted=fitted)


def _refused(view: View, pod: Pod | None, reason: str, message: str) -> Ended:
    """The end of an attempt that found a mistake of the user's, unless a rule makes it a failure.

    By itself it is tried again and not counted, as after ``Ignore``.
    """
    code = REFUSED_EXIT_CODE
    action = _action(view, pod, exit_code=code, otherwise="Ignore")
    refused = action == "Ignore"
    return end(view, reason, message, exit_code=code, action=action, refused=refused)


def _action(
    view: View, pod: Pod | None, *, exit_code: int | None, otherwise: Action = "Restart"
) -> Action:
    return failure_policy.action(
        view.lifecycle.failure_policy,
        exit_code=exit_code,
        conditions=pod.conditions if pod else (),
        otherwise=otherwise,
    )


def _failed(
    view: View,
    reason: str,
    message: str,
    *,
    exit_code: int | None = None,
    action: Action = "Restart",
) -> Ended:
    """The end of an attempt that was at work: an elastic one has some that do not count."""
    elastic = view.wishes.elastic
    left = elastic.max_restarts - view.status.elastic_restarts if elastic is not None else 0
    spared = action == "Restart" and left > 0
    ended = end(view, reason, message, exit_code=exit_code, action="Ignore" if spared else action)
    return replace(ended, spared=spared)


def end(
    view: View,
    reason: str,
    message: str,
    *,
    exit_code: int | None = None,
    action: Action = "Restart",
    refused: bool = False,
) -> Ended:
    """The end of the status's attempt, as the trainer's pod shows it.

    Args:
        view: what there is.
        reason: CamelCase word for conditions.
        message: for people.
        exit_code: of the trainer's container, where it says something.
        action: what the failure policy wants of such an end.
        refused: the trainer refused its input: not counted, and tried again.
    """
    counts = not refused and action != "Ignore"
    failures = view.status.failures + counts
    container = container_of(view.pods[-1]) if view.pods else None
    failure = FailureStatus(
        attempt=view.status.attempt,
        reason=reason[:256],
        message=message[:1024],
        pod=view.pods[-1].name if view.pods else "",
        container=container.name if container and container.exit_code is not None else "",
        exit_code=exit_code,
        signal=signal_of(container) or None if container else None,
        time=format_time(view.now),
    )
    return Ended(
        failure=failure,
        counts=counts,
        ignored=not refused and action == "Ignore",
        retry_at=view.now + _pause(view, failures, refused=refused, ignored=not counts),
        final=action == "FailJob" or (counts and failures > view.lifecycle.backoff_limit),
    )


def _pause(view: View, failures: int, *, refused: bool, ignored: bool) -> float:
    """Seconds before the next attempt."""
    if refused:
        return REFUSED_RETRY_SECONDS
    doublings = failures - 1
    if ignored:
        record = current(view.status)
        began = parse_time(record.start_time) if record else None
        # One that ran for long has nothing to do with those before it.
        lasted = began is not None and view.now - began > SETTLED_SECONDS
        doublings = 0 if lasted else view.status.ignored_failures
    base, most = view.lifecycle.restart_backoff_seconds, view.lifecycle.restart_backoff_max_seconds
    return min(base * 2.0 ** min(max(doublings, 0), 20), float(most))
