"""How many replicas an attempt of the trainer has: ``trainer.elastic``.

A first attempt has ``trainer.replicas``, a later one asks for ``maxReplicas``. One that does not
fit on the nodes whole is given up for one of as many replicas as have found a node.
"""

from __future__ import annotations

from collections.abc import Sequence

from rl_contracts.spec.status import RLJobStatus
from rl_contracts.spec.workers import Trainer
from rl_operator.state.attempt_records import current
from rl_operator.state.pod import Pod

DOES_NOT_FIT = "TrainerDoesNotFit"
WAIT_SHARE = 0.5
"""Of ``lifecycle.pendingDeadlineSeconds``: an attempt may wait so long for nodes."""


def of_next(trainer: Trainer, status: RLJobStatus) -> int:
    """Replicas of the attempt that is about to begin, ≥ 1 and within the bounds."""
    bounds, last = trainer.elastic, current(status)
    if bounds is None or last is None:
        return trainer.replicas
    wished = last.replicas if last.reason == DOES_NOT_FIT else bounds.max_replicas
    return max(bounds.min_replicas, min(wished, bounds.max_replicas))


def fitting(trainer: Trainer, pods: Sequence[Pod], *, size: int) -> int | None:
    """How many replicas to make do with; None while an attempt of ``size`` fits or must wait.

    Only the scheduler's word counts: pods that nobody has made are no reason to make fewer.
    """
    bounds = trainer.elastic
    if bounds is None or size <= bounds.min_replicas or not any(pod.unscheduled for pod in pods):
        return None
    placed = sum("PodScheduled" in pod.conditions for pod in pods)
    return max(bounds.min_replicas, min(placed, size - 1))
