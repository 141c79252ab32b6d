"""Trainer attempts: when one begins, has ended, is repeated, and when the job is over.

The ordinal is in the status before its job object is created, and an attempt counts as ended once
its record or ``lastFailure`` says so: so a crash of the operator at any point neither skips nor
repeats one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from rl_contracts.documents.run import Outcome, Run
from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.spec.status import FailureStatus, RLJobStatus
from rl_contracts.spec.workers import Trainer
from rl_operator import failure_policy, sizing
from rl_operator.attempt_records import REFUSED_EXIT_CODE, current, ended, halted, refused
from rl_operator.failure_policy import Action
from rl_operator.pod import Pod
from rl_operator.scrub import scrubbed
from rl_operator.snapshot import TrainerJob
from rl_operator.timestamps import format_time, parse_time
from rl_operator.trainer_end import container_of, describe_end, signal_of

SETTLED_SECONDS = 600.0
"""After an attempt of so long the pauses of ignored failures begin anew."""
REFUSED_RETRY_SECONDS = 30.0
SILENT_SECONDS = 60.0
"""A trainer that has written success but does not end is taken for dead after so long."""
LINGER_SECONDS = 60.0
NEVER_CREATED = "The pod was never created: see whether training-operator is at work."
NEVER_STARTED = "The pod was created, and never started."


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What decides about attempts."""

    status: RLJobStatus
    lifecycle: Lifecycle
    trainer: TrainerJob | None
    """Job object of the status's attempt."""
    others_active: bool
    """An earlier attempt still has a pod, or will have one again."""
    pods: tuple[Pod, ...]
    """Of the status's attempt, the one that tells most last."""
    run: Run | None
    run_known: bool
    """Whether the store answered; otherwise ``run`` says nothing."""
    may_begin: bool
    """Inputs are checked and samplers are there."""
    wishes: Trainer = field(default_factory=Trainer)
    """``spec.trainer``."""
    renderable: bool = True
    """Whether a trainer could be made of the spec, as it is now."""
    samplers_ready: bool = True
    """As many as a start after a suspension asks for."""
    suspend: bool = False
    """The job ought to have no pods."""
    late: str = ""
    """What is the matter with a sampler that lags for so long that the run is to fail."""
    now: float
    store_now: float
    """The document store's clock: what the run says of times is compared with this one alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to decide yet."""

    why: Literal["Inputs", "Samplers", "Backoff", "Stopping", "Outcome", "Running", "Suspended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Write the next ordinal to the status; its job object follows."""

    attempt: int
    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The attempt has failed, or was refused."""

    failure: FailureStatus
    counts: bool
    retry_at: float
    final: bool
    """It was the last one."""
    ignored: bool = False
    """A failure that the failure policy does not count."""
    fitted: int | None = None
    """Replicas of the next attempt, where this one did not fit on the nodes."""
    spared: bool = False
    """It is one of ``trainer.elastic.maxRestarts``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halted:
    """The attempt was stopped for a suspension and has left nothing behind: no failure."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """The run has succeeded."""

    outcome: Outcome


Decision = Wait | Begin | Ended | Halted | Complete


def decide(view: View) -> Decision:
    """What happens next to the trainer of a job that is not over."""
    outcome = view.run.outcome if view.run else None
    if outcome is not None and outcome.kind == "Succeeded" and _gone(view):
        return Complete(outcome=outcome)
    if view.suspend:
        return _suspend(view, outcome)
    overdue = _active_deadline(view)
    if overdue is not None:
        return overdue
    if view.status.attempt == 0:
        return _begin(view) if view.may_begin else Wait(why="Inputs")
    if ended(view.status):
        return _after_end(view)
    if view.late:
        message = f"weightSync.onTimeout is Fail. {view.late}"
        return _end(view, "WeightSyncTimeout", message, action="FailJob")
    if view.trainer is None:
        return Wait(why="Running")
    if view.trainer.state == "Active":
        return _deadlines(view, view.trainer) or Wait(why="Running")
    return _conclude(view, view.trainer, outcome)


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


def _active_deadline(view: View) -> Ended | None:
    if _active_seconds_left(view) >= 0:
        return None
    limit = view.lifecycle.active_deadline_seconds
    message = f"The job was active for more than lifecycle.activeDeadlineSeconds, {limit} s."
    return _end(view, "DeadlineExceeded", message, action="FailJob")


def lingers(pod: Pod, now: float) -> bool:
    """Whether a stopped attempt's pod is worth waiting for.

    One that outlives its grace is on a node that does not answer. The epoch fences it out.
    """
    return pod.remains and (pod.gone_by is None or now <= pod.gone_by + LINGER_SECONDS)


def _suspend(view: View, outcome: Outcome | None) -> Decision:
    if view.status.attempt == 0 or ended(view.status):
        return Wait(why="Suspended")
    if view.trainer is not None and view.trainer.state != "Active":
        return _conclude(view, view.trainer, outcome)  # it had ended before it was stopped
    if view.trainer is not None or view.pods:
        return Wait(why="Stopping")
    return Halted(attempt=view.status.attempt)


def _gone(view: View) -> bool:
    if view.trainer is None or view.trainer.state != "Active":
        return True
    assert view.run is not None
    return view.store_now - max(view.run.heartbeat_at, view.run.progress_at) > SILENT_SECONDS


def _after_end(view: View) -> Decision:
    retry_at = parse_time(view.status.next_retry_time)
    # One that is further away than the longest pause was set by a clock that has been put right.
    longest = max(view.lifecycle.restart_backoff_max_seconds, REFUSED_RETRY_SECONDS)
    if retry_at is not None and 0 < retry_at - view.now <= longest:
        return Wait(why="Backoff")
    active = view.trainer is not None and view.trainer.state == "Active"
    if view.others_active or active or any(lingers(one, view.now) for one in view.pods):
        return Wait(why="Stopping")
    if not view.renderable or (refused(view.status) and not view.may_begin):
        return Wait(why="Inputs")
    if halted(view.status) and not view.samplers_ready:
        return Wait(why="Samplers")
    return _begin(view)


def _begin(view: View) -> Begin:
    size = sizing.of_next(view.wishes, view.status)
    return Begin(attempt=view.status.attempt + 1, replicas=size)


def _conclude(view: View, trainer: TrainerJob, outcome: Outcome | None) -> Decision:
    pod = view.pods[-1] if view.pods else None
    container = container_of(pod)
    exit_code = container.exit_code if container else None
    if not view.run_known and (trainer.state == "Succeeded" or exit_code == REFUSED_EXIT_CODE):
        return Wait(why="Outcome")
    by_refusal = exit_code in (REFUSED_EXIT_CODE, None) or trainer.state == "Succeeded"
    if outcome is not None and outcome.kind == "Refused" and by_refusal:
        where = f"{outcome.field} = {outcome.value!r}: " if outcome.field else ""
        message = scrubbed(f"{where}{outcome.message} {outcome.remedy}".strip())
        return _end(view, outcome.reason, message, exit_code=REFUSED_EXIT_CODE, refused=True)
    if trainer.state == "Succeeded":
        message = "The trainer ended with exit code 0 and left no outcome in the run document."
        return _end(view, "ExitedWithoutOutcome", message, exit_code=exit_code)
    action = failure_policy.action(
        view.lifecycle.failure_policy,
        exit_code=exit_code,
        conditions=pod.conditions if pod else (),
    )
    if outcome is not None and outcome.kind == "Failed" and exit_code in (1, None):
        message = scrubbed(outcome.message)
        return _failed(view, outcome.reason, message, exit_code=exit_code, action=action)
    reason, message = describe_end(pod, container)
    # Exit code 2 is the mark of a refusal; an end without one must not carry it.
    code = None if exit_code == REFUSED_EXIT_CODE else exit_code
    return _failed(view, reason, message or trainer.message, exit_code=code, action=action)


def _deadlines(view: View, trainer: TrainerJob) -> Decision | None:
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
        return _end(view, "PendingDeadlineExceeded", message)
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
    why = next(one.unscheduled for one in view.pods if one.unscheduled)
    message = (
        f"{size} replicas did not fit on the nodes within {seconds:.0f} s; the next attempt has "
        f"{fitted} (trainer.elastic). {scrubbed(why)}"
    )
    return replace(_end(view, sizing.DOES_NOT_FIT, message, action="Ignore"), fitted=fitted)


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
    ended = _end(view, reason, message, exit_code=exit_code, action="Ignore" if spared else action)
    return replace(ended, spared=spared)


def _end(
    view: View,
    reason: str,
    message: str,
    *,
    exit_code: int | None = None,
    action: Action = "Restart",
    refused: bool = False,
) -> Ended:
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
