"""Finished tasks of the train queue: read as whole groups, judged, or put out of the queue."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import Cause, Task
from rl_trainer.algorithm import credit
from rl_trainer.algorithm.groups import Group, Limits, assemble
from rl_trainer.context.job import Job

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A group that will not be trained, and has left the queue."""

    cause: Cause
    reason: str
    rollouts: tuple[Rollout, ...] = ()
    """Where it had finished."""


@dataclass(slots=True)
class News:
    """What was found since the last time."""

    groups: list[Group] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)

    def add(self, other: News) -> None:
        """Append what was found later."""
        self.groups += other.groups
        self.losses += other.losses


class Intake:
    """Makes groups of finished tasks."""

    def __init__(self, job: Job, *, limits: Limits, freed: Callable[[], None]) -> None:
        """See the class.

        Args:
            job: whose queue.
            limits: of usable rollouts.
            freed: called when a task was put out of the queue.
        """
        self._job, self._limits, self._freed = job, limits, freed

    def judged(self, new: list[Task]) -> News:
        """Whole groups that teach something; all others are put out of the queue."""
        news = News()
        current = self._current(new, news)
        for task, found in zip(current, self.assemble(current), strict=True):
            if isinstance(found, str):
                news.losses.append(self.drop(task, Cause.UNUSABLE, f"unusable: {found}"))
                continue
            dull = credit.no_signal(
                found.rollouts, self._job.spec.algorithm, baseline=found.baseline
            )
            if dull:
                news.losses.append(
                    self.drop(task, Cause.FILTERED, f"no signal: {dull}", group=found)
                )
            else:
                news.groups.append(found)
        return news

    def _current(self, new: list[Task], news: News) -> list[Task]:
        """Without tasks that were trained long ago, deleted, and inserted once more.

        A trainer that slept through its replacement may do that. Their places in the stream were
        noted in the run before they were deleted.
        """
        if not new or self._job.spec.lifecycle.retention.keeps_documents:
            return new
        run = self._job.stores.runs.get(self._job.run)
        below = run.deleted.tasks_below if run else 0
        for task in new:
            if task.sequence < below:
                reason = "its place in the stream was trained before"
                news.losses.append(self.drop(task, Cause.UNUSABLE, reason))
        return [task for task in new if task.sequence >= below]

    def assemble(self, tasks: list[Task]) -> list[Group | str]:
        """Read the groups of finished tasks, or why one is unusable."""
        read = self._job.stores.rollouts.read(
            [rollout for task in tasks for rollout in task.rollouts]
        )
        return [
            next(
                (read.damaged[rollout] for rollout in task.rollouts if rollout in read.damaged),
                None,
            )
            or assemble(task, read.whole, self._limits)
            for task in tasks
        ]

    def drop(self, task: Task, cause: Cause, reason: str, *, group: Group | None = None) -> Loss:
        """Put a finished task out of the queue."""
        self._job.stores.tasks.drop([task.id], reason=reason, cause=cause)
        self._freed()
        return told(task, cause, reason, group=group)


def told(task: Task, cause: Cause, reason: str, *, group: Group | None = None) -> Loss:
    """A loss, told in the log."""
    level = logging.INFO if cause in (Cause.STALE, Cause.FILTERED) else logging.WARNING
    log.log(level, "group %s is lost (%s): %s", task.id, cause, reason)
    return Loss(cause=cause, reason=reason, rollouts=group.rollouts if group else ())
