"""Which documents of a run may go. Pure.

Whatever a plan names stays dispensable whatever happens later: steps become durable and never
undurable, an ended task never comes back, a deleted batch is not looked at again. So a trainer that
was replaced in the middle of deleting harms nobody by going on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rl_contracts.documents.run import Run
from rl_contracts.spec.retention import Bound, Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A document."""

    id: str
    time: float
    """Store time: of a batch when it was formed, of a task until when it was last claimed, of a
    rollout when it was claimed."""
    size: int = 0
    """Bytes; 0 where no bound asks for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem(Item):
    """A batch."""

    step: int
    epoch: int
    parent: str | None
    next_sequence: int
    tasks: tuple[str, ...]
    rollouts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskItem(Item):
    """A task."""

    ended: bool
    """Out of every queue."""
    train: bool
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutItem(Item):
    """A rollout."""

    task: str


AnItem = TypeVar("AnItem", bound=Item)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All that is looked at."""

    run: Run
    batches: Sequence[BatchItem]
    tasks: Sequence[TaskItem]
    rollouts: Sequence[RolloutItem]
    reusable_steps: int = 0
    """The last steps of the lineage whose rollouts may be trained again."""

    @property
    def first_needed(self) -> int:
        """The oldest step that a restart or a repeated training looks at."""
        run = self.run
        durable = run.durable.step if run.durable else 0
        return min(durable, run.step - self.reusable_steps) if self.reusable_steps else durable


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What goes, oldest first."""

    batches: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    rollouts: tuple[str, ...] = ()
    batches_below: int = 0
    """No batch of the lineage of an earlier step is kept."""
    tasks_below: int = 0
    """Tasks at earlier positions of the train stream may be gone."""
    held: Mapping[str, int]
    """By kind: how many are beyond their bounds and stay because they are needed."""

    @property
    def empty(self) -> bool:
        """Whether nothing goes."""
        return not (self.batches or self.tasks or self.rollouts)


def plan(inventory: Inventory, bounds: Retention, *, now: float) -> Plan:
    """Choose what goes.

    Batches from the last durable step on stay, and all that they trained; so do tasks that have not
    ended, with their rollouts. What a batch or a task takes along goes with it, else each kind by
    its own bound.

    Args:
        inventory: what there is.
        bounds: the manifest's.
        now: store time.
    """
    lineage = _lineage(inventory)
    batches, batches_held = _batches(inventory, lineage, bounds.batches, now=now)
    kept = [batch for batch in inventory.batches if batch.id not in batches]
    gone = [batch for batch in inventory.batches if batch.id in batches]
    kept_tasks = {name for one in kept for name in one.tasks}
    kept_rollouts = {name for one in kept for name in one.rollouts}
    floor = _floor(inventory, lineage)
    past = {task.id for task in inventory.tasks if _past(task, floor) and task.id not in kept_tasks}
    of_batches = {name for one in gone for name in one.tasks} & past
    tasks, tasks_held = _beyond(
        inventory.tasks, bounds.tasks, free=lambda one: one.id in past, now=now, also=of_batches
    )
    waiting = {task.id for task in inventory.tasks if not task.ended}
    free = {
        rollout.id
        for rollout in inventory.rollouts
        if rollout.id not in kept_rollouts and rollout.task not in waiting
    }
    along = {rollout.id for rollout in inventory.rollouts if rollout.task in tasks} | {
        name for one in gone for name in one.rollouts
    }
    rollouts, rollouts_held = _beyond(
        inventory.rollouts,
        bounds.rollouts,
        free=lambda one: one.id in free,
        now=now,
        also=along & free,
    )
    first = min((one.step for one in lineage if one.id not in batches), default=0)
    return Plan(
        batches=_in_order(inventory.batches, batches),
        tasks=_in_order(inventory.tasks, tasks),
        rollouts=_in_order(inventory.rollouts, rollouts),
        batches_below=first if any(one.id in batches for one in lineage) else 0,
        tasks_below=floor if tasks else 0,
        held={"batches": batches_held, "tasks": tasks_held, "rollouts": rollouts_held},
    )


def _lineage(inventory: Inventory) -> list[BatchItem]:
    known = {batch.id: batch for batch in inventory.batches}
    chain = []
    name = inventory.run.head_batch
    while name is not None and name in known:
        chain.append(known.pop(name))
        name = chain[-1].parent
    return chain[::-1]


def _batches(
    inventory: Inventory, lineage: list[BatchItem], bound: Bound, *, now: float
) -> tuple[set[str], int]:
    """Batches that go: the oldest steps of the lineage without a gap, and strays beside it."""
    run, needed = inventory.run, inventory.first_needed
    on = {one.id for one in lineage}
    free = {one.id for one in lineage if one.step < needed} | {
        batch.id
        for batch in inventory.batches
        if batch.id not in on and (batch.epoch < run.epoch or batch.step <= needed)
    }
    going = {batch.id for batch in inventory.batches if batch.step < run.deleted.batches_below}
    gone, held = _beyond(
        inventory.batches, bound, free=lambda one: one.id in free, now=now, also=going
    )
    for index, one in enumerate(lineage):
        if one.id not in gone:
            return gone - {later.id for later in lineage[index:]}, held
    return gone, held


def _floor(inventory: Inventory, lineage: list[BatchItem]) -> int:
    """Position of the train stream before which every task has ended and none is inserted again."""
    durable = inventory.run.durable
    last = next((one for one in lineage if durable and one.step == durable.step), None)
    if last is None:
        return inventory.run.deleted.tasks_below
    waiting = [task.sequence for task in inventory.tasks if task.train and not task.ended]
    return min([last.next_sequence, *waiting])


def _past(task: TaskItem, floor: int) -> bool:
    return task.ended and (not task.train or task.sequence < floor)


def _beyond(
    items: Iterable[AnItem],
    bound: Bound,
    *,
    free: Callable[[AnItem], bool],
    now: float,
    also: set[str],
) -> tuple[set[str], int]:
    """Ids that go, and how many are beyond the bound and are needed."""
    gone = set(also)
    left = sorted((item for item in items if item.id not in gone), key=_age)
    count, size = len(left), sum(one.size for one in left)
    old_held = large_held = 0
    for one in left:
        old = bound.max_age_seconds is not None and now - one.time > bound.max_age_seconds
        many = bound.max_count is not None and count > bound.max_count
        large = bound.max_bytes is not None and size > bound.max_bytes
        if not (old or many or large):
            continue
        if free(one):
            gone.add(one.id)
            count, size = count - 1, size - one.size
        else:
            old_held, large_held = old_held + old, large_held + large
    if bound.max_bytes is None or size <= bound.max_bytes:
        large_held = 0
    many_held = count - bound.max_count if bound.max_count is not None else 0
    return gone, max(old_held, large_held, many_held)


def _age(one: Item) -> tuple[float, str]:
    return (one.time, one.id)


def _in_order(items: Iterable[Item], wanted: set[str]) -> tuple[str, ...]:
    return tuple(item.id for item in sorted(items, key=_age) if item.id in wanted)
