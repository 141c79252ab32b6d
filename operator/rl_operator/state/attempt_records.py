"""What a status says of its attempts, and whether a job has stopped."""

from __future__ import annotations

from rl_contracts.spec.status import AttemptStatus, RLJobStatus
from rl_contracts.spec.workers import Trainer
from rl_operator.kube.conditions import find
from rl_operator.state.snapshot import JobSnapshot, Pool

REFUSED_EXIT_CODE = 2
"""Of a trainer that refused its input: only the user can fix it."""
REPLACED_EXIT_CODES = (3, 4)
"""Of a trainer that another one replaced, or that started after a later attempt: not a failure."""


def ended(status: RLJobStatus) -> bool:
    """Whether the status's attempt is known to have ended."""
    record = current(status)
    # Another version may have ended it with a result that this one does not know.
    if record is not None and (record.result != "Active" or record.end_time is not None):
        return True
    return status.last_failure is not None and status.last_failure.attempt == status.attempt


def current(status: RLJobStatus) -> AttemptStatus | None:
    """The record of the status's attempt."""
    record = status.attempts[-1] if status.attempts else None
    return record if record is not None and record.attempt == status.attempt else None


def halted(status: RLJobStatus) -> bool:
    """Whether the status's attempt was stopped for a suspension."""
    record = current(status)
    return record is not None and record.result == "Suspended"


def suspends(status: RLJobStatus) -> bool:
    """Whether the status records a suspension that is under way."""
    return status.operation is not None and status.operation.kind == "Suspend"


def is_halting(snapshot: JobSnapshot) -> bool:
    """Whether a suspension has deleted the trainer of an attempt that has not ended yet.

    The suspension may be over by now: the next attempt continues, so that one attempt never has
    pods of two specs.
    """
    status, trainer = snapshot.job.status, snapshot.current_trainer()
    under_way = status.attempt > 0 and not ended(status)
    return suspends(status) and under_way and (trainer is None or trainer.deleting)


def refused(status: RLJobStatus) -> bool:
    """Whether the status's attempt ended because the user must change something."""
    failure = status.last_failure
    if failure is None or failure.attempt != status.attempt:
        return False
    return failure.exit_code == REFUSED_EXIT_CODE


def replicas(trainer: Trainer, status: RLJobStatus) -> int:
    """Replicas of the attempt that the status names, ≥ 1."""
    record = current(status)
    return (record.replicas if record is not None else 0) or trainer.replicas


def is_over(status: RLJobStatus) -> bool:
    """Whether the job has completed or failed for good."""
    return status.completion_time is not None


def is_at_rest(snapshot: JobSnapshot, after: RLJobStatus) -> bool:
    """Whether a job that must have no pods has none, and none can appear."""
    stopped = after.attempt == 0 or ended(after)
    at_work = any(trainer.state == "Active" for trainer in snapshot.trainers)
    scaled = all(_scaled_down(pool) for pool in snapshot.pools)
    return stopped and scaled and not at_work and not any(pod.remains for pod in snapshot.all_pods)


def _scaled_down(pool: Pool) -> bool:
    ready = find(pool.status.conditions, "Ready")
    if ready is None or ready.reason != "Suspended":
        return False
    # The queue's limit is in the pool's spec: the pool must have observed it.
    queued = pool.spec is not None and pool.spec.admitted is not None
    return not queued or pool.status.observed_generation >= pool.meta.generation
