"""The groups of a step, and tasks by their place in the stream."""

from __future__ import annotations

from rl_contracts import ids
from rl_contracts.documents.batch import Batch
from rl_contracts.documents.run import Run
from rl_contracts.documents.task import Task
from rl_contracts.errors import IntegrityError
from rl_contracts.queries.answers import GroupRow, PromptsAnswer, StepAnswer
from rl_contracts.queries.kinds import GROUPS_PER_PAGE, PromptsQuery, StepQuery
from rl_contracts.queries.lineage import Lineage, find_ids
from rl_contracts.queries.rows import group_row, read_listed, read_tasks, rollout_row
from rl_contracts.stores.connect import Stores


def answer_step(stores: Stores, run: Run, query: StepQuery) -> StepAnswer:
    """The batch of a step, and a page of its groups."""
    lineage = Lineage.of(stores, run)
    name = lineage.batches(query.step, query.step).get(query.step)
    try:
        batch = stores.batches.get([name]).get(name) if name else None
    except IntegrityError as error:
        return StepAnswer(step=query.step, batch=name or "", problem=str(error))
    if batch is None:
        return StepAnswer(step=query.step, problem=missing_batch(run, query.step))
    shown = batch.tasks[query.first_group : query.first_group + GROUPS_PER_PAGE]
    answer = step_row(batch)
    metrics = answer.metrics
    if metrics is None and run.latest is not None and run.latest.step == batch.step:
        metrics = run.latest
    first, end = _prompts(stores, run, lineage, batch)
    changes = {
        "rows": _groups(stores, batch, shown),
        "first_group": query.first_group,
        "first_prompt": first,
        "end_prompt": end,
        "metrics": metrics,
    }
    return answer.model_copy(update=changes)


def _prompts(stores: Stores, run: Run, lineage: Lineage, batch: Batch) -> tuple[int, int]:
    """Positions from a batch's first prompt up to the next batch's first, or to its last one.

    Groups finish in another order than that of the stream, so those of two batches may overlap.
    """
    own = [ids.task_sequence(task) for task in batch.tasks]
    if not own:
        return 0, 0
    if batch.step >= run.step:
        return min(own), max(max(own) + 1, batch.next_sequence)
    name = lineage.batches(batch.step + 1, batch.step + 1).get(batch.step + 1)
    stored = find_ids(stores.mongo, "batches", [name] if name else [], ["tasks"])
    later = [ids.task_sequence(task) for each in stored.values() for task in each.get("tasks", [])]
    return min(own), max(max(own) + 1, min(later, default=0))


def step_row(batch: Batch) -> StepAnswer:
    """A batch without its groups."""
    return StepAnswer(
        batch=batch.id,
        step=batch.step,
        epoch=batch.epoch,
        parent=batch.parent,
        state=batch.state,
        formed_at=batch.formed_at,
        digest=batch.digest,
        members=len(batch.members),
        groups=len(batch.tasks),
        metrics=batch.metrics,
    )


def missing_batch(run: Run, step: int) -> str:
    """Why a step has no batch."""
    if step > run.step:
        return f"Step {step} is not trained yet: the run is at step {run.step}."
    if step < run.deleted.batches_below:
        return "The batch was deleted by spec.lifecycle.retention."
    return "The batch is not in the store."


def _groups(stores: Stores, batch: Batch, tasks: list[str]) -> list[GroupRow]:
    """Rows of some tasks; a rollout's id starts with that of its task."""
    wanted = set(tasks)
    members = {
        member.rollout: member
        for member in batch.members
        if member.rollout.rsplit(".", 2)[0] in wanted
    }
    named = [each for each in batch.rollouts if each.rsplit(".", 2)[0] in wanted]
    known = read_tasks(stores.mongo, tasks)
    listed = read_listed(stores.mongo, named)
    rows = []
    for name in tasks:
        own = [each for each in listed.values() if each.task == name]
        rollouts = [
            rollout_row(each, member=members.get(each.id), step=batch.step)
            for each in sorted(own, key=lambda each: each.member)
        ]
        if name in known:
            rows.append(group_row(known[name], rollouts))
    return rows


def answer_prompts(stores: Stores, run: Run, query: PromptsQuery) -> PromptsAnswer:
    """Tasks at consecutive positions."""
    run_id = ids.RunId(run.id)
    positions = range(query.first, query.first + query.count)
    wanted = [ids.task_id(run_id, query.split, position) for position in positions]
    tasks = read_tasks(stores.mongo, wanted)
    return PromptsAnswer(
        rows=[group_row(tasks[name]) for name in wanted if name in tasks],
        first=query.first,
        next_sequence=_next_sequence(stores, run),
    )


def _next_sequence(stores: Stores, run: Run) -> int:
    if run.head_batch is None:
        return 0
    fields = find_ids(stores.mongo, "batches", [run.head_batch], ["next_sequence"])
    stored = fields.get(run.head_batch, {})
    return int(stored.get("next_sequence", 0))


def task_of(stores: Stores, task: str) -> Task | None:
    """A task by id."""
    return read_tasks(stores.mongo, [task]).get(task)
