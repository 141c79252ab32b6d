"""A retention pass over a run: list documents, plan, record the intent, delete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rl_contracts.documents.batch import Batch
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import Deleted, Run
from rl_contracts.documents.saved_turn import SavedTurn
from rl_contracts.documents.task import Queue, Task
from rl_contracts.retention.plan import (
    BatchItem,
    Inventory,
    Item,
    Plan,
    RolloutItem,
    TaskItem,
    plan,
)
from rl_contracts.spec.retention import Retention
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.listing import measure_sizes, scan, scan_as

ItemT = TypeVar("ItemT", bound=Item)

IDS_PER_CALL = 256
GROWTH = 0.05
"""Share of the kept steps by which a run grows until the next pass: a pass lists all documents, so
its cost for each step does not grow with the run."""
BATCHES_PER_READ = 32
BATCH_FIELDS = ("step", "epoch", "formed_at", "parent", "next_sequence")
TASK_FIELDS = ("queue", "split", "sequence", "lease_until", "first_claimed_at")


class Sweeper:
    """Applies retention bounds to the documents of a run.

    Batches and the sizes of rollouts and tasks never change and are cached between passes.
    """

    def __init__(
        self, stores: Stores, *, run: str, bounds: Retention, reusable_steps: int = 0
    ) -> None:
        """Use the stores of a run; nothing is read before the first pass.

        Args:
            stores: the namespace's stores.
            run: id of the run.
            bounds: bounds from the manifest.
            reusable_steps: number of last steps whose rollouts may be trained again.
        """
        self._reusable_steps = reusable_steps
        self._stores, self._run, self._bounds = stores, run, bounds
        self._batches: dict[str, BatchItem] = {}
        self._sizes: dict[str, dict[str, int]] = {}
        self._swept_at: int | None = None
        """Step of the run at the last pass."""

    def plan(self) -> Plan:
        """Plan what a pass would delete now; changes nothing.

        Raises:
            LookupError: the run does not exist.
        """
        return self._plan(self._stores.runs.require(self._run))

    def sweep(self, *, epoch: int, only_if_due: bool = False) -> Plan:
        """Delete the documents beyond the bounds.

        With ``only_if_due`` nothing happens until the run has grown by ``GROWTH`` since the last
        pass.

        The intent is written to the run document first, under the epoch. Rollouts are deleted
        before the tasks and batches that lead to them, so the next pass completes an interrupted
        one.

        Raises:
            FencedOutError: a newer trainer took over the run; nothing was deleted.
            LookupError: the run does not exist.
        """
        if self._bounds.keeps_documents:
            return Plan(held={})
        run = self._stores.runs.require(self._run)
        if only_if_due and not self._is_due(run):
            return Plan(held={})
        self._swept_at = run.step
        chosen = self._plan(run)
        if chosen.empty:
            return chosen
        deleted = Deleted(
            batches_below=max(run.deleted.batches_below, chosen.batches_below),
            tasks_below=max(run.deleted.tasks_below, chosen.tasks_below),
        )
        self._stores.runs.note_deleted(self._run, epoch=epoch, deleted=deleted)
        for chunk in _chunks(chosen.rollouts):
            self._stores.rollouts.delete_all(chunk)
        for chunk in _chunks(self._turns_of(chosen.tasks)):
            self._stores.turns.delete_all(chunk)
        for chunk in _chunks(chosen.tasks):
            self._stores.tasks.delete(chunk)
        for chunk in _chunks(chosen.batches):
            self._stores.batches.delete_all(chunk)
        return chosen

    def _turns_of(self, tasks: Sequence[str]) -> list[str]:
        """Saved turns of tasks, which a sampler deletes unless it dies or its save is late."""
        wanted = set(tasks)
        saved = scan(self._stores.mongo, SavedTurn.collection, self._run, fields=("task",))
        return [turn["_id"] for turn in saved if turn["task"] in wanted]

    def _is_due(self, run: Run) -> bool:
        if self._swept_at is None:
            return True
        kept = run.step - max(0, run.deleted.batches_below - 1)
        return run.step - self._swept_at >= GROWTH * kept

    def _plan(self, run: Run) -> Plan:
        if self._bounds.keeps_documents:
            return Plan(held={})
        # Rollouts first: a task or batch that is read later may name them, never the reverse.
        inventory = Inventory(
            run=run,
            rollouts=self._listed(Rollout.collection, _rollout, fields=("task", "timings")),
            tasks=self._listed(Task.collection, _task, fields=TASK_FIELDS),
            batches=self._all_batches(),
            reusable_steps=self._reusable_steps,
        )
        return plan(inventory, self._bounds, now=self._stores.mongo.now())

    def _listed(
        self, collection: str, make: Callable[[Mapping[str, Any]], ItemT], *, fields: Sequence[str]
    ) -> list[ItemT]:
        items = scan_as(self._stores.mongo, collection, self._run, make=make, fields=fields)
        rollouts = collection == Rollout.collection
        bound = self._bounds.rollouts if rollouts else self._bounds.tasks
        if bound.max_bytes is None:
            return items
        sizes = self._measured(collection, [item.id for item in items])
        return [replace(item, size=sizes.get(item.id, 0)) for item in items]

    def _measured(self, collection: str, ids: Sequence[str]) -> dict[str, int]:
        before = self._sizes.get(collection, {})
        known = {name: before[name] for name in ids if name in before}
        for chunk in _chunks([name for name in ids if name not in known]):
            known |= measure_sizes(self._stores.mongo, collection, chunk)
        self._sizes[collection] = known
        return known

    def _all_batches(self) -> list[BatchItem]:
        documents = scan(self._stores.mongo, Batch.collection, self._run, fields=BATCH_FIELDS)
        headers = {document["_id"]: document for document in documents}
        self._batches = {name: item for name, item in self._batches.items() if name in headers}
        missing = [batch for batch in headers if batch not in self._batches]
        for first in range(0, len(missing), BATCHES_PER_READ):
            page = missing[first : first + BATCHES_PER_READ]
            read = self._stores.batches.read(page)
            sizes = measure_sizes(self._stores.mongo, Batch.collection, page)
            self._batches |= {
                name: _batch(headers[name], read.whole.get(name), size=sizes.get(name, 0))
                for name in (*read.whole, *read.damaged)
            }
        return [self._batches[batch] for batch in headers if batch in self._batches]


def _batch(header: Mapping[str, Any], batch: Batch | None, *, size: int) -> BatchItem:
    """A batch; one whose overflow is damaged can train nothing, so it needs no rollouts."""
    members = batch.rollouts if batch else ()
    return BatchItem(
        id=header["_id"],
        step=header["step"],
        epoch=header["epoch"],
        time=header["formed_at"],
        size=size,
        parent=header["parent"],
        next_sequence=header["next_sequence"],
        tasks=tuple(batch.tasks) if batch else (),
        rollouts=members,
    )


def _task(stored: Mapping[str, Any]) -> TaskItem:
    return TaskItem(
        id=stored["_id"],
        ended=stored["queue"] == Queue.CONSUMED,
        train=stored.get("split", "train") == "train",
        sequence=stored["sequence"],
        time=max(stored["lease_until"], stored.get("first_claimed_at", 0.0)),
    )


def _rollout(stored: Mapping[str, Any]) -> RolloutItem:
    return RolloutItem(
        id=stored["_id"],
        task=stored["task"],
        time=stored.get("timings", {}).get("claimed_at", 0.0),
    )


def _chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(ids), IDS_PER_CALL):
        yield ids[first : first + IDS_PER_CALL]
