"""How long an active attempt has had no pod that runs, and when that ends it."""

from __future__ import annotations

import math

from rl_contracts.documents.run import Holder
from rl_operator.state.decisions import AttemptContext
from rl_operator.state.trainer_job import TrainerJob


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
    run, own = context.run, Holder(job=context.job, attempt=context.status.attempt)
    if run is not None and run.holder == own:
        seen.append(context.store_now - run.heartbeat_at)
    return min(seen, default=None)
