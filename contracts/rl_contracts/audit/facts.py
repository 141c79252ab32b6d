"""Reads the documents that the audit of a run checks, without token arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rl_contracts.audit.lineage import HEADER_FIELDS, Header, Lineage, trace
from rl_contracts.audit.orphans import ROLLOUT_FIELDS, TASK_FIELDS, Orphans, judge_orphans
from rl_contracts.documents.batch import Batch
from rl_contracts.documents.manifest import PolicyRecord
from rl_contracts.documents.rollout import Rollout
from rl_contracts.documents.run import Run
from rl_contracts.documents.sampler import Sampler
from rl_contracts.documents.task import Task
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.listing import scan

BATCHES_PER_READ = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What the audit needs of a batch on the lineage."""

    batch: str
    tasks: tuple[str, ...]
    rollouts: tuple[str, ...]
    generated: int | None
    """Number of trained tokens; None: no digest was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that the audit of a run checks."""

    run: Run
    now: float
    """Store time."""
    headers: tuple[Header, ...]
    members: tuple[Member, ...]
    """Batches of the lineage, in order."""
    tasks: Mapping[str, Mapping[str, Any]]
    """TASK_FIELDS of each task, by id."""
    rollouts: Mapping[str, str]
    """Task id by rollout id."""
    policies: tuple[PolicyRecord, ...]
    samplers: tuple[Sampler, ...]
    orphans: Orphans
    max_trainings: int = 1
    """Number of steps that may train the same rollout."""

    @property
    def lineage(self) -> Lineage:
        """The batches that lead to the head."""
        return trace(self.run, self.headers)


def gather(stores: Stores, run: str, *, max_trainings: int) -> Facts:
    """Read a run's documents; raises LookupError when the run does not exist.

    Documents that refer to others are read first, so that what they refer to exists by then.

    Args:
        stores: the namespace's stores.
        run: id of the run.
        max_trainings: number of steps that may train the same rollout.
    """
    document = stores.runs.require(run)
    stored = scan(stores.mongo, Batch.collection, run, fields=HEADER_FIELDS)
    headers = tuple(Header.of(header) for header in stored)
    chain = [step.id for step in trace(document, headers).steps]
    tasks = scan(stores.mongo, Task.collection, run, fields=TASK_FIELDS)
    rollouts = scan(stores.mongo, Rollout.collection, run, fields=ROLLOUT_FIELDS)
    later = scan(stores.mongo, Task.collection, run, fields=TASK_FIELDS)
    now = stores.mongo.now()
    return Facts(
        run=document,
        now=now,
        headers=headers,
        members=tuple(_members(stores, chain)),
        tasks={task["_id"]: task for task in [*later, *tasks]},
        rollouts={rollout["_id"]: rollout["task"] for rollout in rollouts},
        policies=tuple(stores.policies.of_run(run)),
        samplers=tuple(stores.samplers.of_run(run)),
        orphans=judge_orphans(tasks=tasks, rollouts=rollouts, later=later, now=now),
        max_trainings=max_trainings,
    )


def _members(stores: Stores, chain: list[str]) -> Iterable[Member]:
    for first in range(0, len(chain), BATCHES_PER_READ):
        page = chain[first : first + BATCHES_PER_READ]
        batches = stores.batches.get(page)
        for name in page:
            batch = batches[name]
            yield Member(
                batch=name,
                tasks=tuple(batch.tasks),
                rollouts=tuple(member.rollout for member in batch.members),
                generated=batch.digest.generated if batch.digest else None,
            )
