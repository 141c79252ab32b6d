"""Tasks and rollouts of a run that contradict each other. For audits only, never to decide on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from rl_contracts.documents.task import Queue, TaskState
from rl_contracts.stores.clients.mongo import Stored

LEASE_GRACE_SECONDS = 30.0
"""A lease may have expired for this long: a reaper runs every few seconds."""
OPEN_QUEUES = (Queue.TRAIN, Queue.EVALUATION)
TASK_FIELDS = (
    "queue",
    "state",
    "rollouts",
    "cause",
    "attempt",
    "lease_until",
    "group_size",
    "baseline",
)
ROLLOUT_FIELDS = ("task", "attempt", "member")


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


def judge_orphans(
    *,
    tasks: Sequence[Stored],
    rollouts: Sequence[Stored],
    later: Sequence[Stored],
    now: float,
) -> Orphans:
    """Problems of tasks and rollouts that were read one after the other. Pure.

    Rollouts of an attempt that no group chose are not orphans: retention deletes them. Consumed
    tasks are not checked, because retention may have deleted their rollouts.

    Args:
        tasks: ``TASK_FIELDS`` of the run's tasks.
        rollouts: ``ROLLOUT_FIELDS`` of its rollouts, read after the tasks, so that those which a
            task lists are among them.
        later: as ``tasks``, read after the rollouts, so that the claims which wrote them are
            among them.
        now: store time.
    """
    held = {rollout["_id"] for rollout in rollouts}
    claims = {task["_id"]: task for task in [*tasks, *later]}
    return Orphans(
        expired_claims=sorted(
            task["_id"]
            for task in claims.values()
            if task["state"] == TaskState.CLAIMED
            and task["lease_until"] < now - LEASE_GRACE_SECONDS
        ),
        missing_rollouts=sorted(
            rollout
            for task in tasks
            if task["state"] == TaskState.DONE and task["queue"] in OPEN_QUEUES
            for rollout in task["rollouts"]
            if rollout not in held
        ),
        unclaimed_rollouts=sorted(
            rollout["_id"]
            for rollout in rollouts
            if not _explained(rollout, claims.get(rollout["task"]))
        ),
    )


def _explained(rollout: Stored, task: Stored | None) -> bool:
    if task is None:
        return False
    members = task["group_size"] + task.get("baseline", False)
    return rollout["attempt"] in range(1, task["attempt"] + 1) and (
        rollout["member"] in range(members)
    )
