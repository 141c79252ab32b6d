"""Which tasks and rollouts contradict each other, when others write between the reads."""

from __future__ import annotations

from typing import Any

from rl_contracts.audit.orphans import LEASE_GRACE_SECONDS, Orphans, judge_orphans
from rl_contracts.documents.task import Queue, TaskState

NOW = 1000.0


def task(**changes: Any) -> dict[str, Any]:
    known = {"_id": "t", "queue": Queue.TRAIN, "state": TaskState.DONE, "rollouts": []}
    return {**known, "attempt": 1, "lease_until": NOW, "group_size": 2} | changes


def rollout(name: str, *, attempt: int = 1, member: int = 0) -> dict[str, Any]:
    return {"_id": name, "task": "t", "attempt": attempt, "member": member}


def judged(
    tasks: list[dict[str, Any]],
    rollouts: list[dict[str, Any]],
    later: list[dict[str, Any]] | None = None,
) -> Orphans:
    later = tasks if later is None else later
    return judge_orphans(tasks=tasks, rollouts=rollouts, later=later, now=NOW)


def test_a_claim_between_the_reads_explains_its_rollouts() -> None:
    assert not judged([task()], [rollout("r", attempt=2)], [task(attempt=2)])
    assert judged([task()], [rollout("r", attempt=2)]).unclaimed_rollouts == ["r"]


def test_a_task_that_is_made_or_deleted_between_the_reads_explains_its_rollouts() -> None:
    assert not judged([], [rollout("r")], [task()])
    assert not judged([task()], [rollout("r")], [])
    assert judged([], [rollout("r")]).unclaimed_rollouts == ["r"]


def test_a_group_that_is_done_after_the_rollouts_were_read_misses_none() -> None:
    running = task(state=TaskState.CLAIMED)
    assert not judged([running], [], [task(rollouts=["r"])])
    assert judged([task(rollouts=["r"])], []).missing_rollouts == ["r"]


def test_a_greedy_baseline_is_a_member_more() -> None:
    assert not judged([task(baseline=True)], [rollout("r", member=2)])
    assert judged([task()], [rollout("r", member=2)]).unclaimed_rollouts == ["r"]


def test_a_lease_has_a_grace_and_may_be_extended_between_the_reads() -> None:
    over = task(state=TaskState.CLAIMED, lease_until=NOW - LEASE_GRACE_SECONDS - 1)
    assert judged([over], []).expired_claims == ["t"]
    assert not judged([over], [], [task(state=TaskState.CLAIMED)])
    assert not judged([task(state=TaskState.CLAIMED, lease_until=NOW - 1)], [])
