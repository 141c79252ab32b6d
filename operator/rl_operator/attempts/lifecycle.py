"""Trainer attempts: when one begins, is repeated, and when the job is over.

The ordinal is in the status before its job object is created, and an attempt counts as ended once
its record or ``lastFailure`` says so: so a crash of the operator at any point neither skips nor
repeats one.
"""

from __future__ import annotations

from rl_contracts.documents.run import Outcome
from rl_operator.attempts import ends, sizing
from rl_operator.attempts.ends import REFUSED_RETRY_SECONDS
from rl_operator.kube.timestamps import parse_time
from rl_operator.state.attempt_records import ended, halted, refused
from rl_operator.state.decisions import Begin, Complete, Decision, Halted, View, Wait
from rl_operator.state.pod import Pod

SILENT_SECONDS = 60.0
"""A trainer that has written success but does not end is taken for dead after so long."""
LINGER_SECONDS = 60.0


def decide(view: View) -> Decision:
    """What happens next to the trainer of a job that is not over."""
    outcome = view.run.outcome if view.run else None
    if outcome is not None and outcome.kind == "Succeeded" and _gone(view):
        return Complete(outcome=outcome)
    if view.suspend:
        return _suspend(view, outcome)
    overdue = ends.overdue(view)
    if overdue is not None:
        return overdue
    if view.status.attempt == 0:
        return _begin(view) if view.may_begin else Wait(why="Inputs")
    if ended(view.status):
        return _after_end(view)
    if view.late:
        message = f"weightSync.onTimeout is Fail. {view.late}"
        return ends.end(view, "WeightSyncTimeout", message, action="FailJob")
    if view.trainer is None:
        return Wait(why="Running")
    trainer = ends.as_left(view, view.trainer, outcome)
    if trainer.state == "Active":
        return ends.missed(view, trainer) or Wait(why="Running")
    return ends.conclude(view, trainer, outcome)


def lingers(pod: Pod, now: float) -> bool:
    """Whether a stopped attempt's pod is worth waiting for.

    One that outlives its grace is on a node that does not answer. The epoch fences it out.
    """
    return pod.remains and (pod.gone_by is None or now <= pod.gone_by + LINGER_SECONDS)


def _suspend(view: View, outcome: Outcome | None) -> Decision:
    if view.status.attempt == 0 or ended(view.status):
        return Wait(why="Suspended")
    if view.trainer is not None and view.trainer.state != "Active":
        return ends.conclude(view, view.trainer, outcome)  # it had ended before it was stopped
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
    if view.others_active or active or any(lingers(pod, view.now) for pod in view.pods):
        return Wait(why="Stopping")
    if not view.renderable or (refused(view.status) and not view.may_begin):
        return Wait(why="Inputs")
    if halted(view.status) and not view.samplers_ready:
        return Wait(why="Samplers")
    return _begin(view)


def _begin(view: View) -> Begin:
    size = sizing.of_next(view.wishes, view.status)
    return Begin(attempt=view.status.attempt + 1, replicas=size)
