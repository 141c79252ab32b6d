"""Finished tasks of the train queue: read as whole groups, then admitted or dropped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.task import Cause, Task
from rl_trainer.algorithm import credit
from rl_trainer.algorithm.groups import Group, Limits, assemble
from rl_trainer.context.job import Job
from rl_trainer.distributed.share import ShareReader

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostGroup:
    """A group that will not be trained, and has left the queue."""

    cause: Cause
    reason: str
    rollouts: tuple[RolloutHead, ...] = ()
    """Of a group that had finished; else empty."""


@dataclass(slots=True)
class QueueUpdate:
    """Groups that finished, and groups that were lost, since the last update."""

    groups: list[Group] = field(default_factory=list)
    lost: list[LostGroup] = field(default_factory=list)

    def add(self, other: QueueUpdate) -> None:
        """Append a later update."""
        self.groups += other.groups
        self.lost += other.lost


class Intake:
    """Makes groups of finished tasks.

    Args:
        job: whose queue.
        limits: of usable rollouts.
        reader: where this process reads the rollouts that it trains.
        freed: called when a task was taken out of the queue.
    """

    def __init__(
        self, job: Job, *, limits: Limits, reader: ShareReader, freed: Callable[[], None]
    ) -> None:
        self._job, self._limits, self._freed = job, limits, freed
        self._reader = reader

    def judge(self, new: list[Task]) -> QueueUpdate:
        """Split finished tasks into groups to train and lost groups; the latter leave the queue."""
        update = QueueUpdate()
        current = self._current(new, update)
        for task, result in zip(current, self.assemble(current), strict=True):
            if isinstance(result, str):
                update.lost.append(self.drop(task, Cause.UNUSABLE, f"unusable: {result}"))
                continue
            dull = credit.no_signal(
                result.rollouts, self._job.spec.algorithm, baseline=result.baseline
            )
            if dull:
                update.lost.append(self.drop(task, Cause.FILTERED, dull, group=result))
            else:
                update.groups.append(result)
        return update

    def _current(self, new: list[Task], update: QueueUpdate) -> list[Task]:
        """Drop tasks that were trained long ago, deleted, and inserted once more.

        A trainer that was replaced while it was suspended may insert them. The run notes up to
        which sequence tasks were deleted, before it deletes them.
        """
        if not new or self._job.spec.lifecycle.retention.keeps_documents:
            return new
        run = self._job.stores.runs.get(self._job.run)
        trained_below = run.deleted.tasks_below if run else 0
        for task in new:
            if task.sequence < trained_below:
                reason = "its place in the stream was trained before"
                update.lost.append(self.drop(task, Cause.UNUSABLE, reason))
        return [task for task in new if task.sequence >= trained_below]

    def assemble(self, tasks: list[Task]) -> list[Group | str]:
        """The group of each finished task, or why it is unusable."""
        read = self._reader.heads([rollout for task in tasks for rollout in task.rollouts])
        return [
            _damage(task.rollouts, read.damaged) or assemble(task, read.whole, self._limits)
            for task in tasks
        ]

    def drop(
        self, task: Task, cause: Cause, reason: str, *, group: Group | None = None
    ) -> LostGroup:
        """Take a finished task out of the queue."""
        self._reader.forget(task.rollouts)
        self._job.stores.tasks.drop([task.id], reason=reason, cause=cause)
        self._freed()
        return log_lost(task, cause, reason, group=group)


def _damage(rollouts: Sequence[str], damaged: Mapping[str, str]) -> str:
    """What is wrong with the first damaged one of some rollouts; empty when nothing is."""
    return next((f"rollout {name}: {damaged[name]}" for name in rollouts if name in damaged), "")


def log_lost(task: Task, cause: Cause, reason: str, *, group: Group | None = None) -> LostGroup:
    """Log that a group is lost, and return the record of it."""
    level = logging.INFO if cause in (Cause.STALE, Cause.FILTERED) else logging.WARNING
    why = reason if reason.startswith(cause) else f"{cause}: {reason}"
    log.log(level, "group %s is not trained: %s", task.id, why)
    return LostGroup(cause=cause, reason=reason, rollouts=group.rollouts if group else ())
