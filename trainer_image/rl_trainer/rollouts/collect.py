"""Waits for the groups of the next step, and chooses them when its batch is formed."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl_contracts.documents.batch import Batch
from rl_contracts.documents.step_metrics import Drops
from rl_contracts.documents.task import Cause, Queue
from rl_contracts.staleness import oldest_trainable_step
from rl_trainer.algorithm import reuse
from rl_trainer.algorithm.drops import Ledger, describe
from rl_trainer.algorithm.groups import Group, Limits, select
from rl_trainer.algorithm.learning_signal import why_filtered
from rl_trainer.context.job import Job, Progress
from rl_trainer.context.waiting import queue_summary
from rl_trainer.data.stream import TrainStream
from rl_trainer.distributed.share import ShareReader
from rl_trainer.errors import TrainingFailedError
from rl_trainer.rollouts import signals
from rl_trainer.rollouts.intake import LostGroup
from rl_trainer.rollouts.pacing import Pacing
from rl_trainer.rollouts.supply import Supply

log = logging.getLogger(__name__)

NO_SIGNAL_BATCHES = 20
"""Groups without signal that may be replaced while a batch is collected, in batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The groups of one step."""

    groups: list[Group]
    wait_seconds: float
    pace_seconds: float = 0.0
    """Of these, for open episodes while all groups were there."""


class Collector:
    """Collects the groups of each step from the train queue.

    Args:
        job: whose queue.
        stream: where prompts come from.
        limits: of usable rollouts.
        reader: where this process reads the rollouts that it trains.
        deadline_seconds: longest wait without a newly completed group.
    """

    def __init__(
        self,
        job: Job,
        stream: TrainStream,
        *,
        limits: Limits,
        reader: ShareReader,
        deadline_seconds: float,
    ) -> None:
        self._job = job
        self._deadline = deadline_seconds
        self._reader = reader
        self._supply = Supply(job, stream, limits=limits, reader=reader)
        self._per_step = job.spec.training.prompts_per_step
        self._off_policy = job.spec.algorithm.off_policy
        self._pacing = Pacing(job)
        self._ledger = Ledger()
        self._complete: dict[str, Group] = {}
        """Never trained."""
        self._usable = 0
        """Their number at the last check."""
        self._damaged = 0
        """Groups that ranks could not train when they read them, since the last step."""
        self._trained: dict[str, Group] = {}
        """Trained groups that may be trained again."""
        self._batches: deque[Batch] = deque(maxlen=self._off_policy.max_staleness)
        """The lineage's last ``maxStaleness`` batches: a rollout trained before them is stale."""

    def recall(self, progress: Progress) -> None:
        """Load trained groups that may be trained again, as the lineage's batches count them."""
        if self._off_policy.max_trainings == 1:
            return
        bound = self._off_policy.max_staleness
        after = max(0, oldest_trainable_step(progress.step, max_staleness=bound))
        stores = self._job.stores
        self._batches.extend(stores.batches.lineage(progress.head, after_step=after))
        names = {task for batch in self._batches for task in batch.tasks}
        tasks = list(stores.tasks.get(names).values())
        for task, group in zip(tasks, self._supply.intake.assemble(tasks), strict=True):
            if isinstance(group, Group):
                self._trained[task.id] = group

    def collect(self, progress: Progress) -> Collected:
        """Wait until the next step's groups are complete.

        Groups that are too old, unusable or dead make room for new prompts while it waits.

        Raises:
            TrainingFailedError: no group was completed for too long, or
                ``rollouts.maxEmptyBatches`` steps' worth of them were lost in a row.
        """
        started = news = self._job.clock()
        self._supply.request(progress, known=self._trained)
        self._pacing.begin()
        while True:
            came = self._take()
            chosen = self._choose(step=progress.step + 1, again=self._supply.caught_up)
            now = self._job.clock()
            news = now if came else news
            missing = self._per_step - len(chosen)
            if missing:
                signals.while_collecting(self._job, progress, self._ledger.filtered)
                self._guard(silent=now - news, have=len(chosen), step=progress.step)
                self._job.heartbeat.say(self._describe(len(chosen), waited=now - started))
            elif self._pacing.holds(chosen, step=progress.step + 1, read=self._complete):
                self._job.heartbeat.say(self._pacing.describe())
            else:
                self._supply.served(ahead=self._left(chosen))
                return Collected(
                    groups=chosen,
                    wait_seconds=now - started,
                    pace_seconds=self._pacing.seconds,
                )
            self._supply.wait(missing=missing)
            self._job.heartbeat.check()

    def _describe(self, have: int, *, waited: float) -> str:
        lost = describe(self._ledger.step)
        return (
            f"waiting for rollouts: {have} of {self._per_step} groups "
            f"({waited:.0f} s{'' if lost == 'none' else f'; lost: {lost}'})"
        )

    def ready(self, progress: Progress) -> bool:
        """Whether ``collect`` would return at once: the groups are read, and no step is paced."""
        self._take()
        if self._off_policy.pace_seconds:
            return False
        return len(self._choose(step=progress.step + 1, again=False)) == self._per_step

    def lose(self, groups: Sequence[Group], damaged: Mapping[str, str]) -> None:
        """Drop collected groups with damaged rollouts; others take their place when one collects.

        Args:
            groups: of a step that was not made.
            damaged: what is wrong with rollouts of theirs, by id.

        Raises:
            TrainingFailedError: ``rollouts.maxEmptyBatches`` steps' worth of groups were damaged
                since the last step.
        """
        for group in groups:
            why = [
                f"rollout {head.id}: {damaged[head.id]}"
                for head in group.rollouts
                if head.id in damaged
            ]
            if not why:
                continue
            self._damaged += 1
            reason = f"unusable: {'; '.join(why)}"
            if self._complete.pop(group.task.id, None) is not None:
                self._count(
                    self._supply.intake.drop(group.task, Cause.UNUSABLE, reason, group=group)
                )
            elif self._trained.pop(group.task.id, None) is not None:
                self._reader.forget(group.task.rollouts)
                log.warning("group %s is not trained again: %s", group.task.id, reason)
        self._usable = len(self._complete)
        if self._damaged >= self._job.spec.rollouts.max_empty_batches * self._per_step:
            raise TrainingFailedError(
                reason="RolloutsFailing",
                message=f"{self._damaged} groups in a row were damaged when they were read, the "
                f"last one because: {self._ledger.last_reason}.",
            )

    @property
    def filtered(self) -> Counter[str]:
        """Groups filtered out since the previous step, by reason."""
        return self._ledger.filtered

    def close_step(self, groups: int) -> tuple[Drops, float]:
        """End a step that trained so many groups.

        Returns:
            Groups lost since the previous step, and the share of lost groups over the last steps,
            in [0, 1].
        """
        self._damaged = 0
        return self._ledger.close_step(groups)

    def retire(self, groups: list[Group], batch: Batch) -> None:
        """Take trained groups out of the queue; their step must be committed.

        What takes their place is handed out when the next groups are collected.
        """
        self._supply.pause()
        self._reader.forget([name for group in groups for name in group.task.rollouts])
        self._job.stores.tasks.retire([group.task.id for group in groups])
        self._batches.append(batch)
        for group in groups:
            self._complete.pop(group.task.id, None)
            self._trained[group.task.id] = group
        self._usable = len(self._complete)
        self._forget(step=batch.step + 1)

    def check(self) -> None:
        """Raise the error that ended the supply's thread."""
        self._supply.check()

    def close(self, *, wait: bool) -> None:
        """Stop handing out prompts and reading groups."""
        self._supply.close(wait=wait)

    def _choose(self, *, step: int, again: bool) -> list[Group]:
        """Choose untrained groups first; trained ones fill the batch up where that is declared.

        They fill it only with ``again``: all finished groups must have been read before.
        """
        bound = self._off_policy.max_staleness
        fresh, stale = select(
            self._complete.values(),
            step=step,
            max_staleness=bound,
            wanted=self._per_step,
            withhold=self._off_policy.withholds,
        )
        for group in stale:
            self._count(self._supply.intake.drop(group.task, Cause.STALE, "stale", group=group))
            del self._complete[group.task.id]
        if stale and self._publishing_lags(step - 1):
            self._ledger.keep()  # not the groups' fault: samplers have no fresh policy yet
        if len(self._complete) > self._usable:
            self._ledger.keep()
        self._usable = len(self._complete)
        if not again:
            return fresh
        filling = reuse.trainable_again(
            self._trained.values(),
            reuse.trainings(self._batches),
            step=step,
            max_staleness=bound,
            max_trainings=self._off_policy.max_trainings,
            interval=self._off_policy.retrain_interval,
            withhold=self._off_policy.withholds,
        )
        return [*fresh, *filling][: self._per_step]

    def _left(self, chosen: list[Group]) -> int:
        """Untrained groups besides the chosen ones."""
        return len(self._complete.keys() - {group.task.id for group in chosen})

    def _forget(self, *, step: int) -> None:
        trainings, max_trainings = reuse.trainings(self._batches), self._off_policy.max_trainings
        before = self._trained
        self._trained = {
            name: group
            for name, group in self._trained.items()
            if group.is_trainable(
                step=step,
                max_staleness=self._off_policy.max_staleness,
                withhold=self._off_policy.withholds,
            )
            and all(
                trainings[rollout.id].times < max_trainings
                for rollout in group.rollouts
                if rollout.id in trainings
            )
        }
        left = before.keys() - self._trained.keys()
        self._reader.forget([rollout for name in left for rollout in before[name].task.rollouts])

    def _take(self) -> bool:
        """Take the supply's update; whether a group in it finished, or was filtered out."""
        news = self._supply.take()
        for loss in news.lost:
            self._count(loss)
        self._complete |= {group.task.id: group for group in news.groups}
        return bool(news.groups) or any(loss.cause is Cause.FILTERED for loss in news.lost)

    def _count(self, loss: LostGroup) -> None:
        self._ledger.drop(loss.cause, loss.reason, loss.rollouts)

    def _why_filtered(self) -> str:
        objective = self._job.spec.algorithm.objective
        return why_filtered(self.filtered, objective=objective)

    def _publishing_lags(self, step: int) -> bool:
        """Whether a due policy is not published yet, so that samplers cannot sample fresh groups.

        No step is made meanwhile, so this ends with the publication or with its error.
        """
        run = self._job.stores.runs.get(self._job.run)
        published = run.policy.step if run is not None and run.policy is not None else -1
        return published < step - step % self._job.spec.weight_sync.every_steps

    def _guard(self, *, silent: float, have: int, step: int) -> None:
        row = self._ledger.in_a_row
        lost, filtered = sum(row.by_cause.values()), row.by_cause.get(Cause.FILTERED, 0)
        if self.filtered.total() >= NO_SIGNAL_BATCHES * self._per_step:
            raise TrainingFailedError(
                reason="NoSignal",
                message=f"{self.filtered.total()} groups were replaced for one step, and {have} of "
                f"{self._per_step} are complete. {self._why_filtered()}",
            )
        if lost >= self._job.spec.rollouts.max_empty_batches * self._per_step:
            if self._publishing_lags(step):
                return  # the publisher raises the bucket's error
            mostly = 2 * filtered > lost
            last = f"The last one was lost because: {self._ledger.last_reason}."
            raise TrainingFailedError(
                reason="NoSignal" if mostly else "RolloutsFailing",
                message=f"{lost} groups in a row were lost ({describe(row)}). "
                f"{self._why_filtered() if mostly else last} "
                f"{queue_summary(self._job, queue=Queue.TRAIN)}",
            )
        if silent > self._deadline:
            raise TrainingFailedError(
                reason="NoRollouts",
                message=f"No group was completed for {silent:.0f} s; {have} of {self._per_step} "
                f"are complete. {queue_summary(self._job, queue=Queue.TRAIN)}",
            )
