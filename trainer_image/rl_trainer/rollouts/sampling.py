"""Samples of a fixed policy: prompts go out in windows, and each that is done is written down.

Pure but for ``Windows``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from rl_contracts.documents.head import RolloutHead
from rl_contracts.documents.rollout import Rollout, tokens_by_version
from rl_contracts.documents.run import Sampled
from rl_contracts.documents.task import Queue, Task, TaskState
from rl_contracts.errors import Refusal, RefusedError
from rl_trainer.algorithm.groups import Group, Limits, assemble
from rl_trainer.context.job import Job
from rl_trainer.context.waiting import poll_seconds, queue_summary
from rl_trainer.data.stream import TrainStream
from rl_trainer.errors import TrainingFailedError

Answered = tuple[Group, list[Rollout]]
"""A group, and its rollouts in the same order with all texts."""
AHEAD = 2
"""Windows that samplers have at a time: none of them waits for the slowest prompt of another."""


class Windows:
    """The prompts of a run, ``promptsPerStep`` at a time.

    Args:
        job: whose prompts, with its number of steps known.
        stream: where they come from.
        versions: of the one policy that may sample them; several where it was published again.
        limits: of usable rollouts.
    """

    def __init__(
        self, job: Job, stream: TrainStream, *, versions: Collection[int], limits: Limits
    ) -> None:
        self._job, self._stream, self._versions, self._limits = job, stream, versions, limits
        self._size = job.spec.training.prompts_per_step

    def sample(self, number: int) -> tuple[list[Answered], list[Task]]:
        """Have the ``number``-th window (from 0) sampled.

        Returns:
            Its groups with their whole rollouts, and its tasks that are given up.

        Raises:
            TrainingFailedError: nothing was completed for too long, or what was is unusable.
        """
        last = min(number + AHEAD, self._job.spec.training.total_steps)
        tasks = [task for window in range(number, last) for task in self._tasks(window)]
        self._job.stores.tasks.insert(tasks)
        self._job.stores.runs.hint(self._job.run, epoch=self._job.epoch)
        ended = self._wait([task.id for task in tasks[: self._size]], number=number)
        dead = [task for task in ended if task.state is TaskState.DEAD]
        return self._groups([task for task in ended if task.state is TaskState.DONE]), dead

    def retire_recorded(self, count: int) -> None:
        """Take the first ``count`` windows out of the queue: who recorded them may have died first.

        They are on record. What is left in the queue when the run ends counts as not sampled.
        """
        tasks, run = self._job.stores.tasks, self._job.run
        for state, take in ((TaskState.DONE, tasks.retire), (TaskState.DEAD, tasks.bury)):
            ended = tasks.find(run, queue=Queue.TRAIN, state=state)
            take([task.id for task in ended if task.sequence < count * self._size])

    def retire(self, groups: Iterable[Group], dead: Iterable[Task]) -> None:
        """Take a recorded window out of the queue."""
        self._job.stores.tasks.retire([group.task.id for group in groups])
        self._job.stores.tasks.bury([task.id for task in dead])

    def _tasks(self, window: int) -> list[Task]:
        first = window * self._size
        return [self._stream.task(first + offset, step=0) for offset in range(self._size)]

    def _wait(self, names: Sequence[str], *, number: int) -> list[Task]:
        job, ended_before = self._job, -1
        news = job.clock()
        while True:
            tasks = job.stores.tasks.get(names)
            ended = [
                task for task in tasks.values() if task.state in (TaskState.DONE, TaskState.DEAD)
            ]
            if len(ended) == len(names):
                return sorted(ended, key=lambda task: task.sequence)
            now = job.clock()
            if len(ended) > ended_before:
                ended_before, news = len(ended), now
                job.heartbeat.advance()
            phase = f"sampling: {number * self._size + len(ended)} of {self._whole} prompts"
            if now - news > job.wait_seconds:
                raise TrainingFailedError(
                    reason="RolloutTimeout",
                    message=f"Stopped {phase} after {now - news:.0f} s without news. "
                    f"{queue_summary(job, queue=Queue.TRAIN)}",
                )
            job.heartbeat.say(phase)
            job.heartbeat.pause(poll_seconds(len(names)))

    @property
    def _whole(self) -> int:
        return self._job.spec.training.total_steps * self._size

    def _groups(self, tasks: Sequence[Task]) -> list[Answered]:
        ids = [rollout for task in tasks for rollout in task.rollouts]
        rollouts = self._job.stores.rollouts.get(ids)
        return [self._group(task, rollouts) for task in tasks]

    def _group(self, task: Task, rollouts: Mapping[str, Rollout]) -> Answered:
        listed = [rollouts[name] for name in task.rollouts if name in rollouts]
        for rollout in listed:
            if problem := self._limits.fault(rollout):
                raise TrainingFailedError(
                    reason="SamplingFailed", message=f"{task.id}: rollout {rollout.id}: {problem}."
                )
        heads = {rollout.id: RolloutHead.of(rollout) for rollout in listed}
        group = assemble(task, heads, self._limits)
        if isinstance(group, str):
            raise TrainingFailedError(reason="SamplingFailed", message=f"{task.id}: {group}.")
        versions = {span.version for rollout in group.rollouts for span in rollout.spans}
        if not versions.issubset(self._versions):
            raise TrainingFailedError(
                reason="SamplingFailed",
                message=f"{task.id} was sampled by policy {_listed(versions)}, and only the "
                f"weights of policy {_listed(self._versions)} may sample. A new job without "
                "spec.runId samples all prompts again.",
            )
        return group, [rollouts[head.id] for head in group.rollouts]


def _listed(versions: Iterable[int]) -> str:
    return ", ".join(str(version) for version in sorted(versions))


def lines(window: Iterable[Answered]) -> bytes:
    """JSON Lines of a window, one for each rollout, in the order of prompts and members."""
    return "".join(
        f"{json.dumps(_line(group.task, rollout), ensure_ascii=False)}\n"
        for group, rollouts in window
        for rollout in rollouts
    ).encode()


def _line(task: Task, rollout: Rollout) -> dict[str, object]:
    return {
        "rollout": rollout.id,
        "dataset": task.dataset,
        "messages": [message.model_dump() for message in task.messages],
        "answer": task.answer,
        "response": rollout.text,
        "turns": len(rollout.turns),
        "stop_reason": rollout.stop_reason.value,
        "reward": rollout.reward,
        "parts": {part.scorer: part.value for part in rollout.parts},
        "version": rollout.spans[0].version,
    }


def check_size(known: Sampled, *, size: int) -> None:
    """Refuse to go on with windows of another size: their prompts would be skipped or repeated.

    Raises:
        RefusedError: the run's windows so far have not ``size`` prompts each.
    """
    prompts = known.prompts + known.given_up
    if prompts == known.windows * size:
        return
    before = prompts // known.windows
    raise RefusedError(
        Refusal(
            field="spec.training.promptsPerStep",
            value=str(size),
            reason="WindowsDiffer",
            message=f"The run has sampled {known.windows} windows of {before} prompts.",
            remedy=f"Set it to {before}, or leave spec.runId out to sample all prompts again.",
        )
    )


def added(known: Sampled, groups: Sequence[Group], dead: Sequence[Task]) -> Sampled:
    """The run's sums after another window."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    versions = Counter(known.versions) + tokens_by_version(
        span for rollout in rollouts for span in rollout.spans
    )
    return Sampled(
        windows=known.windows + 1,
        prompts=known.prompts + len(groups),
        given_up=known.given_up + len(dead),
        rollouts=known.rollouts + len(rollouts),
        reward_sum=known.reward_sum + sum(rollout.reward for rollout in rollouts),
        versions=dict(versions),
    )
