"""Which documents of a run may be deleted. Pure.

What a plan names stays deletable whatever happens later: a durable step stays durable, an ended
task never comes back, a deleted batch is not read again. So a trainer that was replaced while it
deleted does no harm when it continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rl_contracts import ids
from rl_contracts.documents.run import Run
from rl_contracts.spec.retention import Bound, Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What retention knows of a document."""

    id: str
    time: float
    """Store time: when a batch was formed, when a task's last lease ended, when a rollout was
    claimed."""
    size: int = 0
    """Bytes; 0 when no bound needs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem(Item):
    """A batch, with the ids of the tasks and rollouts that it names."""

    step: int
    epoch: int
    parent: str | None
    next_sequence: int
    tasks: tuple[str, ...]
    rollouts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskItem(Item):
    """A task and its position in the stream."""

    ended: bool
    """It is in no queue any more."""
    train: bool
    """It belongs to the train split."""
    sequence: int
    """Position in the split's stream, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutItem(Item):
    """A rollout and the task that it belongs to."""

    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that a plan is made from."""

    run: Run
    batches: Sequence[BatchItem]
    tasks: Sequence[TaskItem]
    rollouts: Sequence[RolloutItem]
    reusable_steps: int = 0
    """How many of the last steps have rollouts that may be trained again."""

    @property
    def first_needed(self) -> int:
        """The oldest step that a restart or a repeated training reads."""
        run = self.run
        durable = run.durable.step if run.durable else 0
        return min(durable, run.step - self.reusable_steps) if self.reusable_steps else durable


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Ids of the documents to delete, oldest first."""

    batches: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    rollouts: tuple[str, ...] = ()
    batches_below: int = 0
    """No batch of the lineage is kept whose step is lower."""
    tasks_below: int = 0
    """Train tasks at lower positions may be deleted."""
    held: Mapping[str, int]
    """By kind: how many exceed their bounds but stay because they are still needed."""

    @property
    def empty(self) -> bool:
        """Whether nothing is to be deleted."""
        return not (self.batches or self.tasks or self.rollouts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Documents of one kind that are deleted."""

    ids: set[str]
    held: int
    """How many exceed the bound but are still needed."""


def plan(inventory: Inventory, bounds: Retention, *, now: float) -> Plan:
    """Choose the documents to delete.

    Batches from the last durable step on stay, with everything that they trained. Tasks that have
    not ended stay, with their rollouts, and so do rollouts that a trainer without samplers stores
    before their task. A deleted batch takes its tasks and rollouts along, a deleted task its
    rollouts; apart from that each kind is limited by its own bound.

    Args:
        inventory: all documents of the run.
        bounds: limits from the manifest.
        now: store time.
    """
    lineage = _lineage(inventory)
    floor = _floor(inventory, lineage)
    batches = _batches(inventory, lineage, bounds.batches, now=now)
    tasks = _tasks(inventory, batches.ids, floor, bounds.tasks, now=now)
    rollouts = _rollouts(inventory, batches.ids, tasks.ids, floor, bounds.rollouts, now=now)
    return Plan(
        batches=_in_order(inventory.batches, batches.ids),
        tasks=_in_order(inventory.tasks, tasks.ids),
        rollouts=_in_order(inventory.rollouts, rollouts.ids),
        batches_below=_first_kept_step(lineage, batches.ids),
        tasks_below=floor if tasks.ids else 0,
        held={"batches": batches.held, "tasks": tasks.held, "rollouts": rollouts.held},
    )


def _first_kept_step(lineage: list[BatchItem], deleted: set[str]) -> int:
    """The oldest step of the lineage that stays; 0 when the whole lineage stays or goes."""
    if deleted.isdisjoint(batch.id for batch in lineage):
        return 0
    return min((batch.step for batch in lineage if batch.id not in deleted), default=0)


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
) -> _Choice:
    """The oldest steps of the lineage, without a gap, and batches that are not on the lineage."""
    run, needed = inventory.run, inventory.first_needed
    on_lineage = {batch.id for batch in lineage}
    free = {batch.id for batch in lineage if batch.step < needed} | {
        batch.id
        for batch in inventory.batches
        if batch.id not in on_lineage and (batch.epoch < run.epoch or batch.step <= needed)
    }
    noted = {batch.id for batch in inventory.batches if batch.step < run.deleted.batches_below}
    choice = _beyond(inventory.batches, bound, free=free, now=now, also=noted)
    for index, batch in enumerate(lineage):
        if batch.id not in choice.ids:
            later = {kept.id for kept in lineage[index:]}
            return _Choice(ids=choice.ids - later, held=choice.held)
    return choice


def _tasks(
    inventory: Inventory, deleted_batches: set[str], floor: int, bound: Bound, *, now: float
) -> _Choice:
    """Ended tasks before ``floor`` that no kept batch names; deleted batches take theirs along."""
    kept, deleted = _named(inventory.batches, deleted_batches, lambda batch: batch.tasks)
    free = {task.id for task in inventory.tasks if _past(task, floor)} - kept
    return _beyond(inventory.tasks, bound, free=free, now=now, also=deleted & free)


def _rollouts(
    inventory: Inventory,
    deleted_batches: set[str],
    deleted_tasks: set[str],
    floor: int,
    bound: Bound,
    *,
    now: float,
) -> _Choice:
    """Rollouts of ended tasks that no kept batch trains; batches and tasks take theirs along."""
    kept, deleted = _named(inventory.batches, deleted_batches, lambda batch: batch.rollouts)
    known = {task.id: task for task in inventory.tasks}
    free = {
        rollout.id
        for rollout in inventory.rollouts
        if (known[rollout.task].ended if rollout.task in known else _is_gone(rollout.task, floor))
    } - kept
    deleted |= {rollout.id for rollout in inventory.rollouts if rollout.task in deleted_tasks}
    return _beyond(inventory.rollouts, bound, free=free, now=now, also=deleted & free)


def _named(
    batches: Iterable[BatchItem],
    deleted: set[str],
    names: Callable[[BatchItem], Iterable[str]],
) -> tuple[set[str], set[str]]:
    """Ids that the kept batches name, and ids that the deleted ones name."""
    by_deleted: dict[bool, set[str]] = {False: set(), True: set()}
    for batch in batches:
        by_deleted[batch.id in deleted].update(names(batch))
    return by_deleted[False], by_deleted[True]


def _floor(inventory: Inventory, lineage: list[BatchItem]) -> int:
    """Position of the train stream before which every task has ended and none is inserted again."""
    durable = inventory.run.durable
    last = next((batch for batch in lineage if durable and batch.step == durable.step), None)
    if last is None:
        return inventory.run.deleted.tasks_below
    waiting = [task.sequence for task in inventory.tasks if task.train and not task.ended]
    return min([last.next_sequence, *waiting])


def _past(task: TaskItem, floor: int) -> bool:
    return task.ended and (not task.train or task.sequence < floor)


def _is_gone(missing: str, floor: int) -> bool:
    """Whether a task that is not in the store was deleted, and is not inserted only later."""
    return ids.task_split(missing) != "train" or ids.task_sequence(missing) < floor


def _beyond(
    items: Iterable[Item], bound: Bound, *, free: set[str], now: float, also: set[str]
) -> _Choice:
    """Choose what is beyond a bound, oldest first.

    Args:
        items: all documents of one kind.
        bound: its bound.
        free: ids that may be deleted.
        now: store time.
        also: ids that are deleted in any case.
    """
    chosen = set(also)
    left = sorted((item for item in items if item.id not in chosen), key=_age)
    count, size = len(left), sum(item.size for item in left)
    old_held = large_held = 0
    for item in left:
        old = _exceeds(now - item.time, bound.max_age_seconds)
        large = _exceeds(size, bound.max_bytes)
        if not (old or large or _exceeds(count, bound.max_count)):
            continue
        if item.id in free:
            chosen.add(item.id)
            count, size = count - 1, size - item.size
        else:
            old_held, large_held = old_held + old, large_held + large
    many_held = count - bound.max_count if bound.max_count is not None else 0
    large_held = large_held if _exceeds(size, bound.max_bytes) else 0
    return _Choice(ids=chosen, held=max(old_held, large_held, many_held))


def _exceeds(value: float, limit: float | None) -> bool:
    return limit is not None and value > limit


def _age(item: Item) -> tuple[float, str]:
    return (item.time, item.id)


def _in_order(items: Iterable[Item], wanted: set[str]) -> tuple[str, ...]:
    return tuple(item.id for item in sorted(items, key=_age) if item.id in wanted)
