"""Keeps samplers supplied with prompts and waits for the groups of the next step."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import Queue, Task, TaskState
from rl_trainer.admission import admissible
from rl_trainer.errors import TrainingFailedError
from rl_trainer.groups import Group, Limits, assemble, select
from rl_trainer.job import Job, Progress
from rl_trainer.stream import TrainStream
from rl_trainer.waiting import poll_seconds, scene

log = logging.getLogger(__name__)

ROLLOUTS_PER_READ = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The groups of one step."""

    groups: list[Group]
    wait_seconds: float
    dropped_stale: int
    """Groups dropped while waiting because their oldest token was too old."""


class Collector:
    """The train queue as the trainer sees it."""

    def __init__(
        self, job: Job, stream: TrainStream, *, limits: Limits, deadline_seconds: float
    ) -> None:
        """See the class.

        Args:
            job: whose queue.
            stream: where prompts come from.
            limits: of usable rollouts.
            deadline_seconds: longest wait without a newly completed group.
        """
        self._job, self._stream, self._limits = job, stream, limits
        self._deadline = deadline_seconds
        self._per_step = job.spec.training.prompts_per_step
        self._max_staleness = job.spec.algorithm.off_policy.max_staleness
        self._complete: dict[str, Group] = {}

    def collect(self, progress: Progress) -> Collected:
        """Wait until the next step's groups are complete.

        Groups that are too old, unusable or dead make room for new prompts while it waits.

        Raises:
            TrainingFailedError: no group was completed for too long, or as many failed in a row as
                are handed out at a time.
        """
        started = news = self._job.clock()
        known, failed, dropped = len(self._complete), 0, 0
        while True:
            self._admit(progress)
            unusable = self._look()
            chosen, stale = select(
                self._complete.values(),
                step=progress.step + 1,
                max_staleness=self._max_staleness,
                wanted=self._per_step,
            )
            self._drop(stale)
            dropped += len(stale)
            now = self._job.clock()
            if len(self._complete) > known:
                news, failed = now, 0
            known, failed = len(self._complete), failed + len(unusable)
            if len(chosen) == self._per_step:
                return Collected(groups=chosen, wait_seconds=now - started, dropped_stale=dropped)
            self._guard(silent=now - news, failed=failed, unusable=unusable, have=len(chosen))
            self._job.heartbeat.say(
                f"waiting for rollouts: {len(chosen)} of {self._per_step} groups "
                f"({now - started:.0f} s)"
            )
            self._job.heartbeat.pause(poll_seconds(self._per_step))

    def retire(self, groups: list[Group]) -> None:
        """Take trained groups out of the queue; their step must be committed."""
        self._job.stores.tasks.consume([group.task.id for group in groups])
        for group in groups:
            del self._complete[group.task.id]

    def _admit(self, progress: Progress) -> None:
        room = admissible(
            outstanding=self._job.stores.tasks.total(self._job.run, queue=Queue.TRAIN),
            prompts_per_step=self._per_step,
            max_staleness=self._max_staleness,
            steps_left=self._job.spec.training.steps - progress.step,
        )
        first = progress.next_sequence
        self._job.stores.tasks.insert(
            [self._stream.task(first + offset, step=progress.step) for offset in range(room)]
        )
        progress.next_sequence += room

    def _look(self) -> list[str]:
        """Read newly finished tasks; return why those that are no data are none."""
        tasks, run = self._job.stores.tasks, self._job.run
        done = tasks.find(run, queue=Queue.TRAIN, state=TaskState.DONE)
        new = [task for task in done if task.id not in self._complete]
        unusable = []
        for task, found in zip(new, self._assemble(new), strict=True):
            if isinstance(found, Group):
                self._complete[task.id] = found
                continue
            tasks.consume([task.id], dropped=f"unusable: {found}")
            unusable.append(found)
        dead = tasks.find(run, queue=Queue.TRAIN, state=TaskState.DEAD)
        tasks.consume([task.id for task in dead])
        unusable += [task.reason for task in dead]
        for reason in unusable:
            log.warning("a group is lost: %s", reason)
        return unusable

    def _assemble(self, tasks: list[Task]) -> list[Group | str]:
        wanted = [rollout for task in tasks for rollout in task.rollouts]
        rollouts: dict[str, Rollout] = {}
        for first in range(0, len(wanted), ROLLOUTS_PER_READ):
            rollouts |= self._job.stores.rollouts.get(wanted[first : first + ROLLOUTS_PER_READ])
        return [assemble(task, rollouts, self._limits) for task in tasks]

    def _drop(self, stale: list[Group]) -> None:
        for group in stale:
            log.info("group %s is stale (step %d)", group.task.id, group.oldest_step)
            self._job.stores.tasks.consume([group.task.id], dropped="stale")
            del self._complete[group.task.id]

    def _guard(self, *, silent: float, failed: int, unusable: list[str], have: int) -> None:
        at_a_time = (self._max_staleness + 1) * self._per_step
        if failed >= at_a_time:
            raise TrainingFailedError(
                reason="RolloutsFailing",
                message=f"{failed} groups in a row were lost, the last one because: "
                f"{unusable[-1] if unusable else 'see the tasks'}. "
                f"{scene(self._job, queue=Queue.TRAIN)}",
            )
        if silent > self._deadline:
            raise TrainingFailedError(
                reason="NoRollouts",
                message=f"No group was completed for {silent:.0f} s, {have} of {self._per_step} "
                f"are there. {scene(self._job, queue=Queue.TRAIN)}",
            )
