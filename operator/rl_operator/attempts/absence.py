"""When an active attempt ends because it has no pod that runs, or a pod's node is lost."""

from __future__ import annotations

import math

from rl_contracts.documents.run import Holder
from rl_operator.state.decisions import AttemptContext
from rl_operator.state.pod import Pod
from rl_operator.state.trainer_job import TrainerJob


def next_lost(context: AttemptContext) -> tuple[float, Pod | None]:
    """Seconds until a pod of the attempt counts as lost, and that pod; inf and None without one."""
    run = context.run
    if run is not None and run.outcome is not None and run.outcome.kind == "Succeeded":
        return math.inf, None  # once it is silent, the job is complete
    due = [
        (pod.overdue_at - context.now, pod.name, pod)
        for pod in context.pods
        if pod.overdue_at is not None and not pod.trainer_has_ended
    ]
    left, _, pod = min(due, default=(math.inf, "", None))
    return left, pod


def seconds_left(context: AttemptContext, trainer: TrainerJob) -> float:
    """Seconds until an attempt without a pod that runs ends; inf: not before something changes."""
    limit = context.lifecycle.pending_deadline_seconds
    if context.pods:
        return context.pods[-1].created_at + limit - context.now
    seen = seconds_since_seen(context, trainer)
    if seen is None:
        return trainer.created_at + limit - context.now
    # Without an answer of the store nobody knows when the pod was last alive.
    return limit - seen if context.run_known else math.inf


def seconds_since_seen(context: AttemptContext, trainer: TrainerJob) -> float | None:
    """How long ago the attempt last gave a sign of a pod that runs; None: it never did."""
    seen = [context.now - trainer.ran_at] if trainer.ran_at is not None else []
    if context.run is not None and is_held(context):
        seen.append(context.store_now - context.run.heartbeat_at)
    return min(seen, default=None)


def is_held(context: AttemptContext) -> bool:
    """Whether the attempt has taken the run, so that what the run says is its own."""
    own = Holder(job=context.job, attempt=context.status.attempt)
    return context.run is not None and context.run.holder == own
