"""Applies a decision to a job's status: attempts and their records, failures, times."""

from __future__ import annotations

from rl_contracts.spec.status import AttemptStatus, RLJobStatus
from rl_operator.kube.timestamps import format_time
from rl_operator.state import attempt_records
from rl_operator.state.decisions import Begin, Complete, Decision, Ended, Halted, Stopped

KEPT_RECORDS = 10


def decided(before: RLJobStatus, decision: Decision | None, now: float) -> RLJobStatus:
    """A status after a decision: attempts, failures and times."""
    time = format_time(now)
    changes: dict[str, object] = {}
    records = recorded(before, decision, now)
    match decision:
        case Begin(attempt=attempt):
            changes = {"attempt": attempt, "next_retry_time": None}
            changes["start_time"] = before.start_time or time
        case Ended(failure=failure, counts=counts, retry_at=retry_at, final=final):
            changes = {"last_failure": failure, "failures": before.failures + counts}
            changes["ignored_failures"] = before.ignored_failures + decision.ignored
            restarts = 0 if counts else before.elastic_restarts + decision.spared
            changes["elastic_restarts"] = restarts
            changes["next_retry_time"] = None if final else format_time(retry_at)
            changes["completion_time"] = time if final else None
        case Complete(outcome=outcome):
            changes = {"completion_time": time, "final_model": outcome.final_model}
            changes["next_retry_time"] = None
        case Stopped():
            changes = {"completion_time": time, "next_retry_time": None}
        case Halted():
            changes = {"next_retry_time": None}
            changes["suspensions"] = before.suspensions + (records != before.attempts)
        case _:
            pass
    return before.model_copy(update={"attempts": records, **changes})


def recorded(status: RLJobStatus, decision: Decision | None, now: float) -> list[AttemptStatus]:
    """The attempts' records after a decision, the newest last."""
    time = format_time(now)
    match decision:
        case Begin(attempt=attempt, replicas=replicas):
            begun = AttemptStatus(attempt=attempt, replicas=replicas, start_time=time)
            return [*status.attempts, begun][-KEPT_RECORDS:]
        case Ended(failure=failure, counts=counts, ignored=ignored, fitted=fitted):
            result = "Failed" if counts else "Ignored" if ignored else "Refused"
            return _closed(status, result, failure.reason, time, replicas=fitted)
        case Halted():
            return _closed(status, "Suspended", "Suspended", time)
        case Complete(outcome=outcome):
            return _closed(status, "Succeeded", outcome.reason, time)
        case _:
            return status.attempts


def _closed(
    status: RLJobStatus, result: str, reason: str, time: str, *, replicas: int | None = None
) -> list[AttemptStatus]:
    record = attempt_records.current(status)
    if record is None or record.result != "Active":
        return status.attempts
    end: dict[str, object] = {"result": result, "reason": reason[:256], "end_time": time}
    end |= {"replicas": replicas} if replicas else {}
    return [*status.attempts[:-1], record.model_copy(update=end)]
