"""Any retention pass leaves the run resumable and the kept batches rebuildable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rl_contracts import ids
from rl_contracts.documents.run import Deleted, DurablePointer
from rl_contracts.retention.plan import BatchItem, Inventory, Plan, RolloutItem, TaskItem, plan
from rl_contracts.spec.retention import Bound, Retention
from tests.examples import examples
from tests.samples.documents import a_run

NOW = 1000.0
PER_STEP = 2


def a_lineage(steps: int, *, durable: int, strays: int = 0, waiting: int = 2) -> Inventory:
    """A run of some steps, two tasks of one rollout each, and a stray batch for the first ones."""
    batches, tasks, rollouts = [], [], []
    for number in range(steps * PER_STEP + waiting):
        tasks.append(
            TaskItem(
                id=f"t{number}",
                ended=number < steps * PER_STEP,
                train=True,
                sequence=number,
                time=float(number),
                size=10,
            )
        )
        for attempt in (1, 2):  # the first attempt's was never chosen
            rollouts.append(
                RolloutItem(
                    id=f"r{number}.{attempt}", task=f"t{number}", time=float(number), size=100
                )
            )
    for step in range(1, steps + 1):
        numbers = range((step - 1) * PER_STEP, step * PER_STEP)
        batch = BatchItem(
            id=f"b{step}",
            step=step,
            epoch=2,
            time=float(step * PER_STEP),
            size=50,
            parent=f"b{step - 1}" if step > 1 else None,
            next_sequence=step * PER_STEP,
            tasks=tuple(f"t{n}" for n in numbers),
            rollouts=tuple(f"r{n}.2" for n in numbers),
        )
        batches.append(batch)
        if step <= strays:
            batches.append(replace(batch, id=f"stray{step}", epoch=1))
    pointer = DurablePointer(step=durable, prefix="c/", manifest_sha256="0")
    run = a_run(
        step=steps,
        epoch=2,
        head_batch=f"b{steps}" if steps else None,
        durable=pointer if durable else None,
    )
    return Inventory(run=run, batches=batches, tasks=tasks, rollouts=rollouts)


def bound(**limits: Any) -> Bound:
    return Bound(**{f"max_{name}": value for name, value in limits.items()})


def test_no_bound_deletes_nothing() -> None:
    assert plan(a_lineage(9, durable=8, strays=3), Retention(), now=NOW).empty


def test_older_batches_are_deleted_with_their_tasks_and_rollouts() -> None:
    chosen = plan(a_lineage(5, durable=4), Retention(batches=bound(count=3)), now=NOW)
    assert chosen.batches == ("b1", "b2")
    assert chosen.tasks == ("t0", "t1", "t2", "t3")
    assert chosen.rollouts == ("r0.1", "r0.2", "r1.1", "r1.2", "r2.1", "r2.2", "r3.1", "r3.2")
    assert (chosen.batches_below, chosen.tasks_below) == (3, 8)


def test_retention_bounds_age_and_bytes() -> None:
    inventory = a_lineage(5, durable=5)
    old = plan(inventory, Retention(batches=bound(age_seconds=993)), now=NOW)
    assert old.batches == ("b1", "b2", "b3")
    large = plan(inventory, Retention(batches=bound(bytes=120)), now=NOW)
    assert large.batches == ("b1", "b2", "b3")
    spare = plan(inventory, Retention(rollouts=bound(bytes=2000)), now=NOW)
    assert spare.rollouts == ("r0.1", "r1.1", "r2.1", "r3.1")
    assert not spare.batches
    assert not spare.tasks


def test_needed_documents_stay_and_are_counted_as_held() -> None:
    inventory = a_lineage(5, durable=3)
    chosen = plan(inventory, Retention(batches=bound(count=1), rollouts=bound(count=1)), now=NOW)
    assert chosen.batches == ("b1", "b2")
    assert chosen.held["batches"] == 2  # b3 and b4; b5 is the one that may stay
    kept = {rollout.id for rollout in inventory.rollouts} - set(chosen.rollouts)
    assert {"r4.2", "r9.2", "r10.1", "r11.2"} <= kept


def test_rollouts_of_reusable_steps_stay() -> None:
    inventory = replace(a_lineage(8, durable=8), reusable_steps=3)
    chosen = plan(inventory, Retention(batches=bound(count=1)), now=NOW)
    assert chosen.batches == ("b1", "b2", "b3", "b4")  # a resuming trainer reads back to b5


def test_rollouts_stay_whose_task_is_still_to_be_inserted() -> None:
    inventory = a_lineage(4, durable=3, waiting=0)  # the durable step ends before position 6
    written = {
        "deleted": an_orphan("train", 5),
        "next": an_orphan("train", 6),
        "of a later step": an_orphan("train", 8),
        "of a past evaluation": an_orphan("eval-validation-1-1", 8),
    }
    bounds = Retention(rollouts=bound(count=1))
    chosen = plan(replace(inventory, rollouts=list(written.values())), bounds, now=NOW)
    free = {what for what, rollout in written.items() if rollout.id in chosen.rollouts}
    assert free == {"deleted", "of a past evaluation"}
    at_first = a_lineage(0, durable=0, waiting=0)
    chosen = plan(replace(at_first, rollouts=list(written.values())), bounds, now=NOW)
    assert chosen.rollouts == (written["of a past evaluation"].id,)


def an_orphan(split: str, sequence: int) -> RolloutItem:
    """A rollout whose task is not in the store."""
    task = ids.task_id(ids.RunId("run"), split, sequence)
    return RolloutItem(id=ids.rollout_id(task, 1, 0), task=task, time=float(sequence), size=100)


def test_nothing_is_deleted_before_the_first_durable_step() -> None:
    everything = Retention(
        batches=bound(count=1), tasks=bound(count=1), rollouts=bound(age_seconds=1)
    )
    chosen = plan(a_lineage(3, durable=0), everything, now=NOW)
    assert (chosen.batches, chosen.tasks) == ((), ())


def test_a_noted_deletion_is_completed_without_any_bound() -> None:
    whole = a_lineage(5, durable=5)
    run = whole.run.model_copy(update={"deleted": Deleted(batches_below=3, tasks_below=10)})
    left = replace(
        whole,
        run=run,
        rollouts=whole.rollouts[6:],
        batches=[batch for batch in whole.batches if batch.id != "b2"],
    )
    chosen = plan(left, Retention(batches=bound(count=4)), now=NOW)
    assert chosen.batches == ("b1",)
    assert {"t0", "t1"} <= set(chosen.tasks)


limits = st.one_of(st.none(), st.integers(1, 40))
bounds = st.builds(
    Bound,
    max_age_seconds=limits.map(lambda limit: limit and 980 + limit),
    max_count=limits,
    max_bytes=limits.map(lambda limit: limit and 60 * limit),
)


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    steps = draw(st.integers(0, 12))
    inventory = a_lineage(
        steps,
        durable=draw(st.integers(0, steps)),
        strays=draw(st.integers(0, steps)),
        waiting=draw(st.integers(0, 4)),
    )
    ended = draw(st.sets(st.sampled_from([task.id for task in inventory.tasks] or ["none"])))
    trained = {name for batch in inventory.batches for name in batch.tasks}
    tasks = [
        replace(task, ended=task.id in ended or task.id in trained) for task in inventory.tasks
    ]
    # A trainer that died between commit and retirement leaves trained tasks in the queue.
    undurable = {f"t{steps * PER_STEP - 1}"} if draw(st.booleans()) else set()
    tasks = [replace(task, ended=task.ended and task.id not in undurable) for task in tasks]
    orphans = [
        an_orphan("train", sequence) for sequence in draw(st.sets(st.integers(0, 30), max_size=3))
    ]
    return replace(
        inventory,
        tasks=tasks,
        rollouts=[*inventory.rollouts, *orphans],
        reusable_steps=draw(st.integers(0, 4)),
    )


def after(inventory: Inventory, chosen: Plan, *, deletions: int) -> Inventory:
    """What is left when the deletion ends after so many documents."""
    order = [*chosen.rollouts, *chosen.tasks, *chosen.batches][:deletions]
    gone = set(order)
    deleted = Deleted(
        batches_below=max(inventory.run.deleted.batches_below, chosen.batches_below),
        tasks_below=max(inventory.run.deleted.tasks_below, chosen.tasks_below),
    )
    return Inventory(
        run=inventory.run.model_copy(update={"deleted": deleted}),
        batches=[batch for batch in inventory.batches if batch.id not in gone],
        tasks=[task for task in inventory.tasks if task.id not in gone],
        rollouts=[rollout for rollout in inventory.rollouts if rollout.id not in gone],
        reusable_steps=inventory.reusable_steps,
    )


def check_safe(left: Inventory, before: Inventory) -> None:
    run = left.run
    batches = {batch.id: batch for batch in left.batches}
    rollouts = {rollout.id for rollout in left.rollouts}
    tasks = {task.id for task in left.tasks}
    # Resumable: from the head back to the durable state itself, with all that is trained again.
    first = max(left.first_needed, 1)
    name, steps = run.head_batch, []
    while name is not None and name in batches and batches[name].step >= first:
        steps.append(batches[name].step)
        assert set(batches[name].rollouts) <= rollouts
        name = batches[name].parent
    assert steps == list(range(run.step, first - 1, -1))
    # Whoever waits keeps all that it has, adopted members included.
    waiting = {task.id for task in before.tasks if not task.ended}
    assert waiting <= tasks
    assert {rollout.id for rollout in before.rollouts if rollout.task in waiting} <= rollouts
    # Kept batches are rebuildable, and their prompts are there.
    for batch in left.batches:
        if batch.step >= run.deleted.batches_below:
            assert set(batch.rollouts) <= rollouts
            assert set(batch.tasks) <= tasks
    # A task that is inserted again by the stream is one that was never deleted.
    last = next((batch for batch in before.batches if batch.id == run.head_batch), None)
    gone = {task.sequence for task in before.tasks} - {task.sequence for task in left.tasks}
    assert all(sequence < run.deleted.tasks_below for sequence in gone)
    assert last is None or all(sequence < last.next_sequence for sequence in gone)
    # Nobody is left without a task that had one.
    known = {task.id for task in before.tasks}
    orphaned = {rollout.task for rollout in left.rollouts if rollout.task in known} - tasks
    chosen = {name for batch in left.batches for name in batch.tasks}
    assert not orphaned - chosen
    # What is stored before its task stays until the durable step is past it.
    durable = run.durable.step if run.durable else 0
    floor = next((batch.next_sequence for batch in before.batches if batch.step == durable), 0)
    stored_first = {
        rollout.id
        for rollout in before.rollouts
        if rollout.task not in known and ids.task_sequence(rollout.task) >= floor
    }
    assert stored_first <= rollouts


@settings(max_examples=examples(150), deadline=None)
@given(inventories(), bounds, bounds, bounds, st.integers(0, 200))
def test_any_interrupted_retention_pass_leaves_a_resumable_run(
    inventory: Inventory, batches: Bound, tasks: Bound, rollouts: Bound, deletions: int
) -> None:
    wanted = Retention(batches=batches, tasks=tasks, rollouts=rollouts)
    chosen = plan(inventory, wanted, now=NOW)
    left = after(inventory, chosen, deletions=deletions)
    check_safe(left, inventory)
    again = plan(left, wanted, now=NOW)
    whole = after(left, again, deletions=10_000)
    check_safe(whole, left)
    # Interrupted or not, two passes come to the same.
    straight = after(inventory, chosen, deletions=10_000)
    third = after(straight, plan(straight, wanted, now=NOW), deletions=10_000)
    assert {batch.id for batch in whole.batches} == {batch.id for batch in third.batches}
