"""Sizes the attempts of an elastic trainer (``trainer.elastic``).

The first attempt has ``trainer.replicas``, later ones ``maxReplicas``. An attempt that does not fit
on the nodes is replaced by one with as many replicas as found a node.
"""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.spec.status import RLJobStatus
from rl_contracts.spec.workers import Trainer
from rl_operator.state.attempt_records import current
from rl_operator.state.pod import Pod

DOES_NOT_FIT = "TrainerDoesNotFit"
WAIT_SHARE = 0.5
"""Share of ``lifecycle.pendingDeadlineSeconds`` that an attempt may wait for nodes."""


def of_next(trainer: Trainer, status: RLJobStatus) -> int:
    """Replicas of the next attempt, ≥ 1 and within the bounds."""
    bounds, last = trainer.elastic, current(status)
    if bounds is None or last is None:
        return trainer.replicas
    wished = last.replicas if last.reason == DOES_NOT_FIT else bounds.max_replicas
    return max(bounds.min_replicas, min(wished, bounds.max_replicas))


def fitting(trainer: Trainer, pods: Sequence[Pod], *, size: int) -> int | None:
    """Replicas that fit on the nodes; None while an attempt of ``size`` fits or must wait.

    Only pods that the scheduler rejected count; pods that were never created do not.
    """
    bounds = trainer.elastic
    if bounds is None or size <= bounds.min_replicas or not any(pod.unscheduled for pod in pods):
        return None
    placed = sum("PodScheduled" in pod.conditions for pod in pods)
    return max(bounds.min_replicas, min(placed, size - 1))
