"""Rows of lists: rollouts without their tokens, and tasks with their prompts shortened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import Field

from rl_contracts.documents.arrays import unpack_float32
from rl_contracts.documents.base import Document
from rl_contracts.documents.batch import BatchMember
from rl_contracts.documents.overflow import FIELD
from rl_contracts.documents.rollout import (
    RewardPart,
    RolloutError,
    StopReason,
    Timings,
    Turn,
    VersionSpan,
)
from rl_contracts.documents.task import Task
from rl_contracts.queries.answers import GroupRow, RolloutRow
from rl_contracts.queries.kinds import TEXT_CHARS
from rl_contracts.queries.lineage import find_ids
from rl_contracts.stores.clients.mongo import Mongo, Stored

NO_TIME = Timings(claimed_at=0.0, generate_seconds=0.0, score_seconds=0.0)


class Listed(Document):
    """The fields of a rollout that a list shows; those that overflowed are empty."""

    task: str
    attempt: int
    member: int
    sampler: str = ""
    greedy: bool = False
    spans: list[VersionSpan] = Field(default_factory=list)
    turns: list[Turn] = Field(default_factory=list)
    text: str = ""
    answer: str | None = None
    stop_reason: StopReason = StopReason.STOP
    error: RolloutError | None = None
    reward: float = 0.0
    parts: list[RewardPart] = Field(default_factory=list)
    timings: Timings = NO_TIME

    collection = "rollouts"


FIELDS = [*(name for name in Listed.model_fields if name != "id"), FIELD]


def read_listed(mongo: Mongo, wanted: Sequence[str]) -> dict[str, Listed]:
    """Rollouts by id, without tokens and without what lies in the bucket."""
    stored = find_ids(mongo, "rollouts", wanted, FIELDS)
    return {name: _listed(each) for name, each in stored.items()}


def _listed(stored: Stored) -> Listed:
    moved = stored.get(FIELD) or {}
    if "text" in moved:
        stored = {**stored, "text": "(The text is large: open the rollout.)"}
    return Listed.from_mongo({name: each for name, each in stored.items() if name != FIELD})


def read_tasks(mongo: Mongo, wanted: Sequence[str]) -> dict[str, Task]:
    """Tasks by id."""
    stored = find_ids(mongo, "tasks", wanted, [])
    return {name: Task.from_mongo(each) for name, each in stored.items()}


def rollout_row(
    rollout: Listed, *, member: BatchMember | None = None, step: int | None = None
) -> RolloutRow:
    """A rollout within a list.

    Args:
        rollout: as stored.
        member: its place in the batch that trained it.
        step: of that batch.
    """
    timings = rollout.timings
    return RolloutRow(
        id=rollout.id,
        member=rollout.member,
        attempt=rollout.attempt,
        sampler=rollout.sampler,
        reward=rollout.reward,
        parts=rollout.parts,
        stop_reason=rollout.stop_reason,
        error=rollout.error,
        text=rollout.text[:TEXT_CHARS],
        cut=len(rollout.text) > TEXT_CHARS,
        answer=rollout.answer,
        versions=sorted({span.version for span in rollout.spans}),
        turns=len(rollout.turns),
        calls=sum(len(turn.calls) for turn in rollout.turns),
        seconds=timings.generate_seconds + timings.tool_seconds + timings.score_seconds,
        advantage=mean_advantage(member) if member else None,
        weight=member.weight if member else None,
        step=step if member else None,
        greedy=rollout.greedy,
    )


def mean_advantage(member: BatchMember) -> float:
    """The advantage of its tokens, or their mean."""
    if not member.token_advantages:
        return member.advantage
    values = unpack_float32(member.token_advantages)
    return sum(values) / len(values)


def group_row(task: Task, rollouts: Iterable[RolloutRow] = ()) -> GroupRow:
    """A task within a list."""
    return GroupRow(
        task=task.id,
        sequence=task.sequence,
        split=task.split,
        dataset=task.dataset,
        example=task.example[:TEXT_CHARS],
        prompt=[(message.role, message.text[:TEXT_CHARS]) for message in task.messages],
        expected=task.answer[:TEXT_CHARS],
        queue=task.queue,
        state=task.state,
        cause=task.cause,
        reason=task.reason[:TEXT_CHARS],
        attempt=task.attempt,
        owner=task.owner,
        group_size=task.group_size,
        created_step=task.created_step,
        rollouts=list(rollouts),
        rollout_ids=task.rollouts,
    )
