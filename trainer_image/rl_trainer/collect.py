"""Keeps samplers supplied with prompts and waits for the groups of the next step."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass

from rl_contracts.documents.batch import Batch
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import Drops
from rl_contracts.documents.task import Cause, Queue, Task, TaskState
from rl_trainer import credit, reuse
from rl_trainer.admission import admissible
from rl_trainer.drops import Ledger, describe
from rl_trainer.errors import TrainingFailedError
from rl_trainer.groups import Group, Limits, assemble, select, staleness
from rl_trainer.job import Job, Progress
from rl_trainer.stream import TrainStream
from rl_trainer.waiting import poll_seconds, scene

log = logging.getLogger(__name__)

ROLLOUTS_PER_READ = 256
NO_SIGNAL_BATCHES = 20
"""So many batches of groups may teach nothing while one batch is collected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The groups of one step."""

    groups: list[Group]
    wait_seconds: float
    drops: Drops
    """Groups lost since the step before."""
    dropped_share: float
    """Of the groups of the last steps, in [0, 1]."""


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
        self._off_policy = job.spec.algorithm.off_policy
        self._ledger = Ledger()
        self._complete: dict[str, Group] = {}
        """Never trained."""
        self._usable = 0
        """How many of them there were when they were looked at last."""
        self._trained: dict[str, Group] = {}
        """May perhaps be trained again."""
        self._batches: deque[Batch] = deque(maxlen=self._off_policy.max_staleness)
        """The lineage's last ones: what is old enough to be in none of them is stale."""

    def recall(self, progress: Progress) -> None:
        """Find what the lineage trained and may train again; its batches are the only count."""
        if self._off_policy.max_trainings == 1:
            return
        after = max(0, progress.step - self._off_policy.max_staleness)
        stores = self._job.stores
        self._batches.extend(stores.batches.lineage(progress.head, after_step=after))
        names = {task for batch in self._batches for task in batch.tasks}
        tasks = list(stores.tasks.get(names).values())
        for task, found in zip(tasks, self._assemble(tasks), strict=True):
            if isinstance(found, Group):
                self._trained[task.id] = found

    def collect(self, progress: Progress) -> Collected:
        """Wait until the next step's groups are complete.

        Groups that are too old, unusable or dead make room for new prompts while it waits.

        Raises:
            TrainingFailedError: no group was completed for too long, or
                ``rollouts.maxEmptyBatches`` steps' worth of them were lost in a row.
        """
        started = news = self._job.clock()
        while True:
            self._admit(progress)
            came = self._look()
            chosen = self._choose(step=progress.step + 1)
            now = self._job.clock()
            news = now if came else news
            if len(chosen) == self._per_step:
                drops, share = self._ledger.close_step(len(chosen))
                waited = now - started
                return Collected(
                    groups=chosen, wait_seconds=waited, drops=drops, dropped_share=share
                )
            self._guard(silent=now - news, have=len(chosen), step=progress.step)
            lost = describe(self._ledger.step)
            self._job.heartbeat.say(
                f"waiting for rollouts: {len(chosen)} of {self._per_step} groups "
                f"({now - started:.0f} s{'' if lost == 'none' else f'; lost: {lost}'})"
            )
            self._job.heartbeat.pause(poll_seconds(self._per_step))

    def retire(self, groups: list[Group], batch: Batch) -> None:
        """Take trained groups out of the queue; their step must be committed."""
        self._job.stores.tasks.retire([group.task.id for group in groups])
        self._batches.append(batch)
        for group in groups:
            self._complete.pop(group.task.id, None)
            self._trained[group.task.id] = group
        self._usable = len(self._complete)
        self._forget(step=batch.step + 1)

    def _choose(self, *, step: int) -> list[Group]:
        """What was never trained comes first; what was fills up where that is declared."""
        bound = self._off_policy.max_staleness
        fresh, stale = select(
            self._complete.values(), step=step, max_staleness=bound, wanted=self._per_step
        )
        for group in stale:
            self._drop(group.task, Cause.STALE, "stale", group=group)
            del self._complete[group.task.id]
        if stale and self._publishing_lags(step - 1):
            self._ledger.keep()  # no fault of the groups: samplers lack what is fresh
        if len(self._complete) > self._usable:
            self._ledger.keep()
        self._usable = len(self._complete)
        again = reuse.trainable_again(
            self._trained.values(),
            reuse.trainings(self._batches),
            step=step,
            max_staleness=bound,
            max_trainings=self._off_policy.max_trainings,
            interval=self._off_policy.retrain_interval,
        )
        return [*fresh, *again][: self._per_step]

    def _forget(self, *, step: int) -> None:
        known, wanted = reuse.trainings(self._batches), self._off_policy.max_trainings
        self._trained = {
            name: group
            for name, group in self._trained.items()
            if staleness(group, step=step) <= self._off_policy.max_staleness
            and all(known[one.id].times < wanted for one in group.rollouts if one.id in known)
        }

    def _admit(self, progress: Progress) -> None:
        room = admissible(
            outstanding=self._job.stores.tasks.total(self._job.run, queue=Queue.TRAIN),
            prompts_per_step=self._per_step,
            max_staleness=self._off_policy.max_staleness,
            steps_left=self._job.spec.training.total_steps - progress.step,
        )
        first = progress.next_sequence
        self._job.stores.tasks.insert(
            [self._stream.task(first + offset, step=progress.step) for offset in range(room)]
        )
        progress.next_sequence += room

    def _look(self) -> bool:
        """Read newly finished tasks; whether any whole group was among them."""
        tasks, run, came = self._job.stores.tasks, self._job.run, False
        done = tasks.find(run, queue=Queue.TRAIN, state=TaskState.DONE)
        new = self._current(
            [one for one in done if one.id not in self._complete and one.id not in self._trained]
        )
        for task, found in zip(new, self._assemble(new), strict=True):
            if isinstance(found, str):
                self._drop(task, Cause.UNUSABLE, f"unusable: {found}")
                continue
            came = True
            dull = credit.no_signal(
                found.rollouts, self._job.spec.algorithm, baseline=found.baseline
            )
            if dull:
                self._drop(task, Cause.FILTERED, f"no signal: {dull}", group=found)
            else:
                self._complete[task.id] = found
        dead = tasks.find(run, queue=Queue.TRAIN, state=TaskState.DEAD)
        tasks.bury([task.id for task in dead])
        for task in dead:
            self._count(task, task.cause or Cause.FAILED, task.reason)
        return came

    def _current(self, new: list[Task]) -> list[Task]:
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
                self._drop(task, Cause.UNUSABLE, reason)
        return [task for task in new if task.sequence >= below]

    def _assemble(self, tasks: list[Task]) -> list[Group | str]:
        wanted = [rollout for task in tasks for rollout in task.rollouts]
        rollouts: dict[str, Rollout] = {}
        damaged: dict[str, str] = {}
        for first in range(0, len(wanted), ROLLOUTS_PER_READ):
            read = self._job.stores.rollouts.read(wanted[first : first + ROLLOUTS_PER_READ])
            rollouts |= read.whole
            damaged |= read.damaged
        return [
            next((damaged[one] for one in task.rollouts if one in damaged), None)
            or assemble(task, rollouts, self._limits)
            for task in tasks
        ]

    def _drop(self, task: Task, cause: Cause, reason: str, *, group: Group | None = None) -> None:
        self._job.stores.tasks.drop([task.id], reason=reason, cause=cause)
        self._count(task, cause, reason, group=group)

    def _count(self, task: Task, cause: Cause, reason: str, *, group: Group | None = None) -> None:
        level = logging.INFO if cause in (Cause.STALE, Cause.FILTERED) else logging.WARNING
        log.log(level, "group %s is lost (%s): %s", task.id, cause, reason)
        self._ledger.drop(cause, reason, group.rollouts if group else ())

    def _publishing_lags(self, step: int) -> bool:
        """Whether a policy that is due is not published yet, so that samplers lack what is fresh.

        The step stands still meanwhile, so this ends with the publication or with its error.
        """
        run = self._job.stores.runs.get(self._job.run)
        published = run.policy.step if run is not None and run.policy is not None else -1
        return published < step - step % self._job.spec.weight_sync.every_steps

    def _guard(self, *, silent: float, have: int, step: int) -> None:
        row = self._ledger.in_a_row
        lost, filtered = sum(row.by_cause.values()), row.by_cause.get(Cause.FILTERED, 0)
        taught = self._ledger.step.by_cause.get(Cause.FILTERED, 0)
        if taught >= NO_SIGNAL_BATCHES * self._per_step:
            raise TrainingFailedError(
                reason="NoSignal",
                message=f"{taught} groups were replaced because they would teach nothing, "
                f"and {have} of {self._per_step} are there. Easier or harder data, or less in "
                "spec.algorithm.shaping, may help.",
            )
        if lost >= self._job.spec.rollouts.max_empty_batches * self._per_step:
            if self._publishing_lags(step):
                return  # the publisher tells of the bucket
            raise TrainingFailedError(
                reason="NoSignal" if 2 * filtered > lost else "RolloutsFailing",
                message=f"{lost} groups in a row were lost ({describe(row)}), the last one "
                f"because: {self._ledger.last_reason}. "
                f"{scene(self._job, queue=Queue.TRAIN)}",
            )
        if silent > self._deadline:
            raise TrainingFailedError(
                reason="NoRollouts",
                message=f"No group was completed for {silent:.0f} s, {have} of {self._per_step} "
                f"are there. {scene(self._job, queue=Queue.TRAIN)}",
            )
