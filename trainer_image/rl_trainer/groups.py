"""Complete groups, and which of them the next step trains. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rl_contracts.documents.batch import Batch
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.task import Task
from rl_contracts.ids import RunId, batch_id
from rl_contracts.spec.algorithm import Algorithm
from rl_trainer import credit
from rl_trainer.assessment import Context
from rl_trainer.samples import fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A finished task with its chosen rollouts, in member order."""

    task: Task
    rollouts: tuple[Rollout, ...]

    @property
    def oldest_step(self) -> int:
        """Training steps of the oldest policy that generated one of its tokens."""
        return min(rollout.oldest_step for rollout in self.rollouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a usable rollout must fit."""

    vocabulary: int
    max_tokens: int
    """Of one sequence, prompt included."""


def assemble(task: Task, rollouts: Mapping[str, Rollout], limits: Limits) -> Group | str:
    """Put a finished task's group together, or say why it is unusable."""
    missing = [one for one in task.rollouts if one not in rollouts]
    if missing:
        return f"rollout {missing[0]} is not in the store"
    listed, least = len(set(task.rollouts)), task.minimum or task.group_size
    if listed != len(task.rollouts) or not least <= listed <= task.group_size:
        wanted = str(least) if least == task.group_size else f"{least} to {task.group_size}"
        return f"it lists {listed} rollouts, not {wanted}"
    chosen = tuple(rollouts[one] for one in task.rollouts)
    for rollout in chosen:
        if not math.isclose(rollout.temperature, task.temperature):
            return f"rollout {rollout.id}: sampled at temperature {rollout.temperature}"
        wrong = fault(rollout, vocabulary=limits.vocabulary, max_tokens=limits.max_tokens)
        if wrong:
            return f"rollout {rollout.id}: {wrong}"
    return Group(task=task, rollouts=chosen)


def staleness(group: Group, *, step: int) -> int:
    """Training steps between the group's oldest token and the update that makes ``step``."""
    return (step - 1) - group.oldest_step


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
        (fresh if staleness(group, step=step) <= max_staleness else stale).append(group)
    fresh.sort(key=lambda group: (group.oldest_step, group.task.sequence))
    return fresh[:wanted], stale


def form(groups: list[Group], *, batch: Batch, algorithm: Algorithm, context: Context) -> Batch:
    """Fill an empty batch with groups and their advantages."""
    members = credit.members([group.rollouts for group in groups], algorithm, context)
    tasks = [group.task.id for group in groups]
    return batch.model_copy(update={"tasks": tasks, "members": members})


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
