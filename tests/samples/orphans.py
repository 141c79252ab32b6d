"""Tasks and rollouts of a stored run that contradict each other."""

from __future__ import annotations

from rl_contracts.audit.orphans import ROLLOUT_FIELDS, TASK_FIELDS, Orphans, judge_orphans
from rl_contracts.stores.clients.mongo import Mongo
from rl_contracts.stores.listing import scan


def find_orphans(mongo: Mongo, run: str) -> Orphans:
    """What an audit finds of them, without all else that it reads."""
    tasks = scan(mongo, "tasks", run, fields=TASK_FIELDS)
    rollouts = scan(mongo, "rollouts", run, fields=ROLLOUT_FIELDS)
    later = scan(mongo, "tasks", run, fields=TASK_FIELDS)
    return judge_orphans(tasks=tasks, rollouts=rollouts, later=later, now=mongo.now())
