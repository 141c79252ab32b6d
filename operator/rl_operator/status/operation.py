"""The operation in progress: a start, a suspension, a restart or a deletion."""

from __future__ import annotations

from typing import Literal

from rl_contracts.spec.status import OperationStatus, RLJobStatus
from rl_operator.attempts import start_gate
from rl_operator.kube.timestamps import format_time, parse_time
from rl_operator.state import attempt_records
from rl_operator.status import pool_wait
from rl_operator.status.status_input import StatusInput

STOP_SECONDS = 300.0
"""How long pods may take to terminate beyond their grace period before it is reported."""
OperationKind = Literal["Start", "Suspend", "Restart", "Delete"]


def operation(status_input: StatusInput, after: RLJobStatus) -> OperationStatus | None:
    """The operation in progress; None when there is none."""
    job, snapshot = status_input.snapshot.job, status_input.snapshot
    if job.meta.deleted_at is not None:
        step = "StoppingPods" if snapshot.all_pods else "DeletingData"
        return _operation(status_input, "Delete", step, seconds=STOP_SECONDS)
    if attempt_records.is_over(after):
        return None
    halting = attempt_records.is_halting(snapshot) and not attempt_records.ended(after)
    if halting or (job.suspended and not attempt_records.is_at_rest(snapshot, after)):
        trainer = after.attempt and not attempt_records.ended(after)
        step = "StoppingTrainer" if trainer else "StoppingSamplers"
        grace = job.basics.suspend_grace_seconds
        return _operation(status_input, "Suspend", step, seconds=grace + STOP_SECONDS)
    if job.suspended or job.spec is None:
        return None
    if start_gate.applies(after):
        return _start(status_input)
    if not attempt_records.ended(after):
        return None
    stopping = any(trainer.state == "Active" for trainer in snapshot.trainers)
    restart = _operation(status_input, "Restart", "StoppingTrainer" if stopping else "Backoff")
    return restart.model_copy(update={"deadline": after.next_retry_time})


def _start(status_input: StatusInput) -> OperationStatus:
    job, snapshot = status_input.snapshot.job, status_input.snapshot
    assert job.spec is not None
    waiting = bool(snapshot.pools) and not status_input.checking
    step = "WaitingForSamplers" if waiting else "CheckingInputs"
    if not status_input.checking and pool_wait.lacks_pool(snapshot):
        step, waiting = "WaitingForPool", False
    start = _operation(status_input, "Start", step)
    since = start_gate.waits_since(snapshot) or parse_time(start.started_time) or 0.0
    limit = job.spec.lifecycle.pending_deadline_seconds
    due = format_time(since + limit) if waiting else None
    return start.model_copy(update={"deadline": due})


def _operation(
    status_input: StatusInput, kind: OperationKind, step: str, *, seconds: float = 0.0
) -> OperationStatus:
    before = status_input.snapshot.job.status.operation
    going_on = before is not None and before.kind == kind
    since = before.started_time if before and going_on else format_time(status_input.now)
    deadline = format_time((parse_time(since) or 0.0) + seconds)
    return OperationStatus(kind=kind, step=step, started_time=since, deadline=deadline)
