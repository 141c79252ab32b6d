"""When a job is reconciled again though nothing enqueues it: at its deadlines, or by a resync."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rl_operator.apply.requeue import (
    RESYNC_SECONDS,
    SOON_SECONDS,
    STALLED_SECONDS,
    UNSETTLED_INTERVALS,
)
from rl_operator.attempts import absence, ends, sizing, start_gate
from rl_operator.kube.conditions import is_true
from rl_operator.kube.timestamps import parse_time
from rl_operator.state import attempt_records
from rl_operator.state.decisions import (
    AttemptContext,
    Begin,
    Complete,
    Decision,
    Ended,
    Halted,
    Stopped,
    Wait,
)
from rl_operator.state.snapshot import JobSnapshot
from rl_operator.status.status_input import StatusInput


def requeue_after(
    status_input: StatusInput,
    context: AttemptContext,
    *,
    status_changed: bool,
    check_inputs_after: float | None,
    progress_seconds: float,
) -> float:
    """Seconds until a job at work is reconciled again.

    Args:
        status_input: what its status was computed from.
        context: what its attempt was decided by.
        status_changed: its status was written, or is about to be. A deadline may count from what
            that says, and our own writes enqueue nothing: another reconcile follows.
        check_inputs_after: seconds until its inputs are worth another check; None: never.
        progress_seconds: interval at which running jobs are polled.
    """
    snapshot = status_input.snapshot
    unsettled = UNSETTLED_INTERVALS * progress_seconds
    match status_input.decision:
        case Begin():
            return 0.0  # the attempt's number is written: its trainer follows
        case Complete() | Ended() | Halted() | Stopped():
            return SOON_SECONDS
        case Wait(why="Suspended"):
            # Pods of the run that end and a queue's decision are events; the end of a program's
            # pod is none, nor is what is wrong with inputs.
            stopping = any(pod.remains for pod in snapshot.own_pods)
            longest = unsettled if stopping else RESYNC_SECONDS
            return min(check_inputs_after or longest, longest)
        case _:
            pass
    if check_inputs_after is not None:
        return check_inputs_after
    rests = is_at_rest(status_input) and not status_changed
    longest = RESYNC_SECONDS if rests else unsettled
    return min(longest, seconds_to_deadline(snapshot, context) + SOON_SECONDS)


def stops_next(snapshot: JobSnapshot) -> bool:
    """Whether a suspension was only just recorded: the next reconcile deletes the trainer."""
    job = snapshot.job
    at_work = any(each.state == "Active" and not each.deleting for each in snapshot.trainers)
    return job.suspended and at_work and not attempt_records.suspends(job.status)


def after_end(snapshot: JobSnapshot, wait: float) -> float:
    """Seconds until a finished job is reconciled again, at most ``wait``.

    The end of a program's pod is no event. Those that stay with their samplers do not end.
    """
    stopping = not snapshot.samplers_stay and any(pod.remains for pod in snapshot.own_pods)
    return min(wait, STALLED_SECONDS) if stopping else wait


def is_at_rest(status_input: StatusInput) -> bool:
    """Whether nothing but an event, a change of its run or a deadline changes a job.

    Its stored status says that it is Ready. A job that a queue may hold back is never at rest.
    """
    job = status_input.snapshot.job
    hindered = status_input.stall or status_input.blocked_reason or status_input.hold
    if job.spec is None or job.spec.scheduling.queued or hindered:
        return False
    return _runs(status_input.decision) and is_true(job.status.conditions, "Ready")


def seconds_to_deadline(snapshot: JobSnapshot, context: AttemptContext) -> float:
    """Seconds until the next time at which the clock alone decides something; inf: never."""
    deadlines = (*_of_start(snapshot, context), *_of_attempt(context))
    return min((left for left in deadlines if left >= 0), default=math.inf)


def _of_start(snapshot: JobSnapshot, context: AttemptContext) -> Iterator[float]:
    since = start_gate.waits_since(snapshot) if start_gate.applies(context.status) else None
    if since is not None:
        yield since + context.lifecycle.pending_deadline_seconds - context.now


def _of_attempt(context: AttemptContext) -> Iterator[float]:
    if attempt_records.ended(context.status):
        retry_at = parse_time(context.status.next_retry_time)
        yield math.inf if retry_at is None else retry_at - context.now
        return
    yield ends.seconds_left(context)
    pod, trainer = context.pods[-1] if context.pods else None, context.trainer
    if trainer is not None and (pod is None or pod.phase == "Pending"):
        limit = context.lifecycle.pending_deadline_seconds
        yield absence.seconds_left(context, trainer)
        yield trainer.created_at + limit * sizing.WAIT_SHARE - context.now


def _runs(decision: Decision | None) -> bool:
    return isinstance(decision, Wait) and decision.why == "Running"
