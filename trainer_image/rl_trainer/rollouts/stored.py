"""Offline training: what is trained are copies of the rollouts that an earlier run has stored.

A copy belongs to this run, so that batches, their digests, replays, retention and the audit are
those of every run, and deleting the earlier run takes nothing from it. Its log-probabilities are
those of the policy that sampled it, with which losses and corrections compare.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from rl_contracts import ids
from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.step_metrics import Drops
from rl_contracts.documents.task import Cause, Task, TaskState
from rl_contracts.errors import RefusedError
from rl_contracts.stores import stored_groups
from rl_contracts.stores.overflowing import Read
from rl_trainer.algorithm import credit
from rl_trainer.algorithm.drops import Ledger, describe
from rl_trainer.algorithm.groups import Group, Limits, assemble
from rl_trainer.context.job import Job, Progress
from rl_trainer.data.stream import TrainStream
from rl_trainer.distributed.share import ShareReader
from rl_trainer.errors import TrainingFailedError
from rl_trainer.rollouts.collect import Collected
from rl_trainer.rollouts.demonstrations import NO_SAMPLER
from rl_trainer.rollouts.without_samplers import WithoutSamplers

log = logging.getLogger(__name__)

GROUPS_AT_ONCE = 64
"""Whose rollouts are in memory whole."""


class StoredGroups(WithoutSamplers):
    """Collects the groups of an earlier run, in the order of the train stream.

    Args:
        job: that trains them.
        stream: whose examples are the earlier run's tasks.
        limits: of usable rollouts.
        reader: where this process reads the rollouts that it trains.
    """

    def __init__(
        self, job: Job, stream: TrainStream, *, limits: Limits, reader: ShareReader
    ) -> None:
        super().__init__(job, reader=reader)
        self._stream, self._limits = stream, limits
        self._ledger = Ledger()

    def collect(self, progress: Progress) -> Collected:
        """Copy the next step's groups.

        Raises:
            RefusedError: a group cannot be trained, or under ``onBadRecord: Skip`` none can.
            TrainingFailedError: a whole pass had no group whose rewards carry a signal.
        """
        started, wanted = self._job.clock(), self._job.spec.training.prompts_per_step
        groups: list[Group] = []
        first = progress.next_sequence
        while len(groups) < wanted:
            self._job.heartbeat.check()
            count = min(GROUPS_AT_ONCE, wanted - len(groups))
            tasks = [self._stream.task(first + at, step=progress.step) for at in range(count)]
            first += count
            groups += self._copied(tasks)
        # Not before the last safe point: a checkpoint saved there would pass over these groups.
        progress.next_sequence = first
        return Collected(groups=groups, wait_seconds=self._job.clock() - started)

    @property
    def filtered(self) -> Counter[str]:
        """Groups filtered out since the previous step, by reason."""
        return self._ledger.filtered

    def close_step(self, groups: int) -> tuple[Drops, float]:
        """Groups that were left out since the previous step, and their share of the last steps."""
        return self._ledger.close_step(groups)

    def _copied(self, tasks: Sequence[Task]) -> list[Group]:
        """The groups at some positions, stored as this run's; those that are left out lack."""
        stores = self._job.stores
        sources = stores.tasks.get({task.example for task in tasks})
        names = [name for source in sources.values() for name in source.rollouts]
        read = stores.rollouts.read(list(dict.fromkeys(names)))
        now = stores.mongo.now()
        groups: list[Group] = []
        kept: list[Rollout] = []
        for task in tasks:
            try:
                copies = _copies(task, sources.get(task.example), read, now=now)
                group = self._group(task, copies)
            except _UnusableError as error:
                self._leave_out(task, Cause.UNUSABLE, str(error))
                continue
            dull = credit.no_signal(group.rollouts, self._job.spec.algorithm)
            if dull:
                self._leave_out(task, Cause.FILTERED, dull, group.rollouts)
                continue
            self._ledger.keep()
            groups.append(group)
            kept += copies
        stores.rollouts.put(kept)
        self._reader.remember(kept)
        stores.tasks.insert([group.task for group in groups])
        return groups

    def _group(self, task: Task, copies: Sequence[Rollout]) -> Group:
        for copy in copies:
            if wrong := self._limits.fault(copy):
                raise _UnusableError(f"rollout {copy.origin}: {wrong}")
        done = {
            "state": TaskState.DONE,
            "attempt": 1,
            "minimum": len(copies),  # its run may have gone on without the slowest members
            "rollouts": [copy.id for copy in copies],
        }
        heads = {copy.id: RolloutHead.of(copy) for copy in copies}
        group = assemble(task.model_copy(update=done), heads, self._limits)
        if isinstance(group, str):
            raise _UnusableError(group)
        return group

    def _leave_out(
        self, task: Task, cause: Cause, why: str, rollouts: Sequence[RolloutHead] = ()
    ) -> None:
        """Count a group that is not trained; raises where that may not be, or where none is."""
        log.info("group %s is not trained: %s", task.example, why)
        self._ledger.drop(cause, why, rollouts)
        nothing = sum(self._ledger.in_a_row.by_cause.values()) >= self._stream.records
        if cause is Cause.UNUSABLE and (nothing or not self._skips):
            raise RefusedError(
                stored_groups.refused(
                    task.example,
                    "RolloutsUnusable",
                    f"The stored group cannot be trained: {why[:300]}.",
                    "Set spec.data.onBadRecord to Skip to train the others, or change what the "
                    "message names, e.g. spec.agent.sampling.maxContextTokens.",
                )
            )
        if nothing:
            raise TrainingFailedError(
                reason="NoSignal",
                message=f"No group of a whole pass can be trained ({describe(self._ledger.step)}), "
                f"the last one because: {why}. Use the rollouts of another run, or fewer filters "
                "in spec.algorithm.shaping.",
            )


class _UnusableError(Exception):
    """A stored group cannot be trained."""


def _copies(task: Task, source: Task | None, read: Read[Rollout], *, now: float) -> list[Rollout]:
    """Copies of a source's sampled members, in its order, as members of ``task``'s group.

    Their age counts from ``now``, store time.
    """
    if source is None:
        raise _UnusableError("its task was deleted")
    for name in source.rollouts:
        if name not in read.whole:
            raise _UnusableError(f"rollout {name}: {read.damaged.get(name, 'it was deleted')}")
    stored = [read.whole[name] for name in source.rollouts]
    return [_copy(task, rollout, now=now) for rollout in stored if not rollout.greedy]


def _copy(task: Task, rollout: Rollout, *, now: float) -> Rollout:
    if rollout.sampler == NO_SAMPLER:
        raise _UnusableError("no policy sampled it: it is a record of a run with objective SFT")
    if rollout.images:
        raise _UnusableError(f"rollout {rollout.id} shows images, which stay with its run")
    return rollout.model_copy(
        update={
            "id": ids.rollout_id(ids.TaskId(task.id), 1, rollout.member),
            "run": task.run,
            "task": task.id,
            "attempt": 1,
            "origin": rollout.id,
            "spans": [span.model_copy(update={"step": 0}) for span in rollout.spans],
            "continues": "",
            "timings": rollout.timings.model_copy(update={"claimed_at": now}),
        }
    )
