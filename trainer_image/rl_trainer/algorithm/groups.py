"""Complete groups, and which of them the next step trains. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rl_contracts.documents.batch import Batch
from rl_contracts.documents.rollout import GREEDY_TEMPERATURE, Rollout
from rl_contracts.documents.task import Task
from rl_contracts.ids import RunId, batch_id
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.staleness import is_trainable
from rl_trainer.algorithm import credit
from rl_trainer.algorithm.assessment import Context
from rl_trainer.algorithm.samples import fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A finished task with its chosen rollouts, in member order."""

    task: Task
    rollouts: tuple[Rollout, ...]
    baseline: Rollout | None = None
    """The greedy one, where the task wants it; it is not trained, so that its age is no matter."""

    @property
    def oldest_step(self) -> int:
        """Training steps of the oldest policy that generated one of its tokens."""
        return min(rollout.oldest_step for rollout in self.rollouts)

    def is_trainable(self, *, step: int, max_staleness: int) -> bool:
        """Whether the update that makes ``step`` may train it: its oldest token decides."""
        return is_trainable(self.oldest_step, step=step, max_staleness=max_staleness)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a usable rollout must fit."""

    vocabulary: int
    max_tokens: int
    """Of one sequence, prompt included."""


def assemble(task: Task, rollouts: Mapping[str, Rollout], limits: Limits) -> Group | str:
    """Put a finished task's group together, or say why it is unusable."""
    missing = [name for name in task.rollouts if name not in rollouts]
    if missing:
        return f"rollout {missing[0]} is not in the store"
    chosen = [rollouts[fromkey] for fromkey in dict.fromkeys(task.rollouts)]
    sampled = tuple(rollout for rollout in chosen if not rollout.greedy)
    greedy = [rollout for rollout in chosen if rollout.greedy]
    listed, least = len(sampled), task.minimum or task.group_size
    if len(chosen) != len(task.rollouts) or not least <= listed <= task.group_size:
        wanted = str(least) if least == task.group_size else f"{least} to {task.group_size}"
        return f"it lists {listed} rollouts, not {wanted}"
    if len(greedy) != task.baseline:
        return f"it lists {len(greedy)} greedy rollouts, not {int(task.baseline)}"
    for rollout in chosen:
        at = GREEDY_TEMPERATURE if rollout.greedy else task.temperature
        if not math.isclose(rollout.temperature, at):
            return f"rollout {rollout.id}: sampled at temperature {rollout.temperature}"
        wrong = fault(rollout, vocabulary=limits.vocabulary, max_tokens=limits.max_tokens)
        if wrong:
            return f"rollout {rollout.id}: {wrong}"
    return Group(task=task, rollouts=sampled, baseline=greedy[0] if greedy else None)


def select(
    groups: Iterable[Group], *, step: int, max_staleness: int, wanted: int
) -> tuple[list[Group], list[Group]]:
    """Choose the groups of the batch that makes ``step``.

    Returns:
        At most ``wanted`` admissible groups, those first that expire first; and all that no step
        may train any more.
    """
    fresh: list[Group] = []
    stale: list[Group] = []
    for group in groups:
        trainable = group.is_trainable(step=step, max_staleness=max_staleness)
        (fresh if trainable else stale).append(group)
    fresh.sort(key=lambda group: (group.oldest_step, group.task.sequence))
    return fresh[:wanted], stale


def form(groups: list[Group], *, batch: Batch, algorithm: Algorithm, context: Context) -> Batch:
    """Fill an empty batch with groups and their advantages."""
    baselines = [group.baseline for group in groups]
    members = credit.members(
        [group.rollouts for group in groups], algorithm, context, baselines=baselines
    )
    return batch.model_copy(
        update={
            "tasks": [group.task.id for group in groups],
            "members": members,
            "baselines": [baseline.id for baseline in baselines if baseline is not None],
        }
    )


def empty_batch(
    *, run: str, step: int, epoch: int, parent: str | None, next_sequence: int, formed_at: float
) -> Batch:
    """The batch that makes ``step``, before it has members."""
    return Batch(
        id=batch_id(RunId(run), step, epoch),
        run=run,
        step=step,
        epoch=epoch,
        parent=parent,
        tasks=[],
        members=[],
        next_sequence=next_sequence,
        formed_at=formed_at,
    )
