"""Finds inconsistent tasks and rollouts of a run. For audits only, never to decide on."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from rl_contracts.documents.task import Queue, Task, TaskState
from rl_contracts.stores.clients.mongo import Mongo, Stored
from rl_contracts.stores.listing import scan
from rl_contracts.stores.tasks import TaskStore

LEASE_GRACE_SECONDS = 30.0
"""A lease may have expired for this long: a reaper runs every few seconds."""
OPEN_QUEUES = (Queue.TRAIN, Queue.EVALUATION)


@dataclass(slots=True)
class Orphans:
    """Ids by problem; each list is empty in a consistent run."""

    expired_claims: list[str] = field(default_factory=list)
    """Claimed tasks whose lease expired and that were not taken back."""
    missing_rollouts: list[str] = field(default_factory=list)
    """Rollouts that a finished task lists but that are not in the store."""
    unclaimed_rollouts: list[str] = field(default_factory=list)
    """Rollouts that no claim of an existing task can have written."""

    def __bool__(self) -> bool:
        """Whether there is any problem."""
        return any(getattr(self, kind.name) for kind in fields(self))


def find_orphans(mongo: Mongo, run: str) -> Orphans:
    """Check all tasks and rollouts of a run; token arrays are not read.

    Rollouts of an attempt that no group chose are not orphans: retention deletes them. Consumed
    tasks are not checked, because retention may have deleted their rollouts.
    """
    tasks = {task.id: task for task in _tasks(mongo, run)}
    rollouts = scan(mongo, "rollouts", run, fields=("task", "attempt", "member"))
    held = {str(rollout["_id"]) for rollout in rollouts}
    limit = mongo.now() - LEASE_GRACE_SECONDS
    return Orphans(
        expired_claims=sorted(
            task.id
            for task in tasks.values()
            if task.state is TaskState.CLAIMED and task.lease_until < limit
        ),
        missing_rollouts=sorted(
            rollout
            for task in tasks.values()
            if task.state is TaskState.DONE and task.queue in OPEN_QUEUES
            for rollout in task.rollouts
            if rollout not in held
        ),
        unclaimed_rollouts=sorted(
            str(rollout["_id"])
            for rollout in rollouts
            if not _explained(rollout, tasks.get(rollout["task"]))
        ),
    )


def _explained(rollout: Stored, task: Task | None) -> bool:
    return (
        task is not None
        and 1 <= rollout["attempt"] <= task.attempt
        and 0 <= rollout["member"] < task.num_members
    )


def _tasks(mongo: Mongo, run: str) -> list[Task]:
    ids = [stored["_id"] for stored in scan(mongo, "tasks", run)]
    return list(TaskStore(mongo).get(ids).values())
