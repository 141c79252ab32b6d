"""Trainer attempts: when one begins, has ended, is repeated, and when the job is over.

The ordinal is in the status before its job object is created, and an attempt counts as ended once
``lastFailure`` names it: so a crash of the operator at any point neither skips nor repeats one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_contracts.documents.run import Outcome, Run
from rl_contracts.spec.status import FailureStatus, RLJobStatus
from rl_contracts.spec.workers import Lifecycle
from rl_operator.snapshot import Container, Pod, TrainerJob, format_time, parse_time

MAX_BACKOFF_SECONDS = 600.0
REFUSED_EXIT_CODE = 2
"""Of a trainer that found a mistake that only the user can mend."""
REFUSED_RETRY_SECONDS = 30.0
SILENT_SECONDS = 60.0
"""A trainer that has written success but does not end is taken for dead after so long."""
SIGNALS = {9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM", 6: "SIGABRT"}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What decides about attempts."""

    status: RLJobStatus
    lifecycle: Lifecycle
    trainer: TrainerJob | None
    """Job object of the status's attempt."""
    others_active: bool
    """An earlier attempt's job object still has a pod."""
    pods: tuple[Pod, ...]
    """Of the status's attempt, the newest last."""
    run: Run | None
    run_known: bool
    """Whether the store answered; otherwise ``run`` says nothing."""
    may_begin: bool
    """Inputs are checked and samplers are there."""
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to decide yet."""

    why: Literal["Inputs", "Backoff", "Stopping", "Outcome", "Running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Write the next ordinal to the status; its job object follows."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The attempt has failed, or was refused."""

    failure: FailureStatus
    counts: bool
    retry_at: float
    final: bool
    """It was the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The run has succeeded."""

    outcome: Outcome


Decision = Wait | Begin | Ended | Complete


def ended(status: RLJobStatus) -> bool:
    """Whether the status's attempt is known to have ended."""
    return status.last_failure is not None and status.last_failure.attempt == status.attempt


def refused(status: RLJobStatus) -> bool:
    """Whether the status's attempt ended because the user must change something."""
    failure = status.last_failure
    return ended(status) and failure is not None and failure.exit_code == REFUSED_EXIT_CODE


def decide(view: View) -> Decision:
    """What happens next to the trainer of a job that is not over."""
    outcome = view.run.outcome if view.run else None
    if outcome is not None and outcome.kind == "Succeeded" and _gone(view):
        return Complete(outcome=outcome)
    if view.status.attempt == 0:
        return Begin(attempt=1) if view.may_begin else Wait(why="Inputs")
    if ended(view.status):
        return _after_end(view)
    if view.trainer is None:
        return Wait(why="Running")
    if view.trainer.state == "Active":
        return _deadlines(view, view.trainer) or Wait(why="Running")
    return _conclude(view, view.trainer, outcome)


def _gone(view: View) -> bool:
    if view.trainer is None or view.trainer.state != "Active":
        return True
    assert view.run is not None
    return view.now - max(view.run.heartbeat_at, view.run.progress_at) > SILENT_SECONDS


def _after_end(view: View) -> Decision:
    retry_at = parse_time(view.status.next_retry_time)
    if retry_at is not None and view.now < retry_at:
        return Wait(why="Backoff")
    if view.others_active or (view.trainer is not None and view.trainer.state == "Active"):
        return Wait(why="Stopping")
    if refused(view.status) and not view.may_begin:
        return Wait(why="Inputs")
    return Begin(attempt=view.status.attempt + 1)


def _conclude(view: View, trainer: TrainerJob, outcome: Outcome | None) -> Decision:
    pod = view.pods[-1] if view.pods else None
    container = _trainer_container(pod)
    exit_code = container.exit_code if container else None
    if not view.run_known and (trainer.state == "Succeeded" or exit_code == REFUSED_EXIT_CODE):
        return Wait(why="Outcome")
    by_refusal = exit_code in (REFUSED_EXIT_CODE, None) or trainer.state == "Succeeded"
    if outcome is not None and outcome.kind == "Refused" and by_refusal:
        where = f"{outcome.field} = {outcome.value!r}: " if outcome.field else ""
        message = f"{where}{outcome.message} {outcome.remedy}".strip()
        return _end(view, outcome.reason, message, exit_code=REFUSED_EXIT_CODE, counts=False)
    if trainer.state == "Succeeded":
        message = "The trainer ended with exit code 0 and left no outcome in the run document."
        return _end(view, "ExitedWithoutOutcome", message, exit_code=exit_code)
    if outcome is not None and outcome.kind == "Failed" and exit_code in (1, None):
        return _end(view, outcome.reason, outcome.message, exit_code=exit_code)
    reason, message = describe_end(pod, container)
    # Exit code 2 is the mark of a refusal; an end without one must not carry it.
    code = None if exit_code == REFUSED_EXIT_CODE else exit_code
    return _end(view, reason, message or trainer.message, exit_code=code)


def describe_end(pod: Pod | None, container: Container | None) -> tuple[str, str]:
    """Reason and message for a trainer pod that ended."""
    if pod is None:
        return "PodMissing", "The trainer's pod is gone and left no exit code."
    if container is None or container.exit_code is None:
        return pod.reason or "PodFailed", pod.trouble() or f"Pod {pod.name} ended without a code."
    code = container.exit_code
    number = container.signal or (code - 128 if code > 128 else 0)
    by = f" by {SIGNALS.get(number, f'signal {number}')}" if number else ""
    reason = (
        container.exit_reason if container.exit_reason not in ("", "Error") else "TrainerFailed"
    )
    if reason == "Completed":
        reason = "TrainerFailed"
    last = container.message.strip()[-700:]
    return reason, f"Exit code {code}{by}." + (f" Last words: {last}" if last else "")


def _deadlines(view: View, trainer: TrainerJob) -> Decision | None:
    pod = view.pods[-1] if view.pods else None
    if pod is None or pod.phase == "Pending":
        limit = view.lifecycle.pending_deadline_seconds
        since = pod.created_at if pod else trainer.created_at
        if view.now - since <= limit:
            return None
        why = (pod.trouble() if pod else "") or "The pod was never created or never started."
        message = f"The trainer's pod did not run within {limit} s. {why}"
        return _end(view, "PendingDeadlineExceeded", message)
    if pod.started_at is None:
        return None  # it has ended; its job object is about to say so
    limit = view.lifecycle.progress_deadline_seconds
    if not view.run_known or (view.run is not None and view.run.outcome is not None):
        return None
    progress = max(pod.started_at, view.run.progress_at if view.run else 0.0)
    if view.now - progress <= limit:
        return None
    doing = view.run.phase if view.run else "nothing: it has not taken the run"
    message = f"No step, evaluation or publication for {limit} s; the trainer says: {doing}."
    return _end(view, "ProgressDeadlineExceeded", message)


def _end(
    view: View, reason: str, message: str, *, exit_code: int | None = None, counts: bool = True
) -> Ended:
    failures = view.status.failures + counts
    delay = REFUSED_RETRY_SECONDS
    if counts:
        base = view.lifecycle.restart_backoff_seconds
        delay = min(base * 2.0 ** min(failures - 1, 20), MAX_BACKOFF_SECONDS)
    failure = FailureStatus(
        attempt=view.status.attempt,
        reason=reason[:256],
        message=message[:1024],
        pod=view.pods[-1].name if view.pods else "",
        exit_code=exit_code,
        time=format_time(view.now),
    )
    return Ended(
        failure=failure,
        counts=counts,
        retry_at=view.now + delay,
        final=counts and failures > view.lifecycle.backoff_limit,
    )


def _trainer_container(pod: Pod | None) -> Container | None:
    if pod is None:
        return None
    return next((one for one in pod.containers if one.name == "pytorch"), None)
