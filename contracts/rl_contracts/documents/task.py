"""A task: one prompt and the group of rollouts that is wanted for it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from rl_contracts.documents.base import Document, Record


class TaskState(StrEnum):
    """Where a task is in its life."""

    PENDING = "pending"
    """Nobody has tried it."""
    RETRY = "retry"
    """An attempt ended without a whole group; comes before pending ones."""
    CLAIMED = "claimed"
    DONE = "done"
    """The chosen rollouts are data."""
    DEAD = "dead"
    """Will never be data; ``reason`` says why."""


class Queue(StrEnum):
    """Who may claim a task, and whether it still waits for the trainer."""

    TRAIN = "train"
    EVALUATION = "evaluation"
    """Claimed only by a sampler that holds the published version."""
    CONSUMED = "consumed"
    """Trained, evaluated or dropped: kept for the audit."""


class Message(Record):
    """One chat message."""

    role: str
    content: str


class Task(Document):
    """One prompt of a run.

    Claims filter on ``run``, ``queue`` and ``state``: string equality, which every supported store
    answers from an index.
    """

    run: str
    queue: Queue
    state: TaskState = TaskState.PENDING
    sequence: int
    """Position in the split's stream, ≥ 0."""
    example: str
    """Id of the dataset record."""
    messages: list[Message]
    answer: str
    group_size: int
    temperature: float
    evaluation_version: int = 0
    """Evaluation only: the policy version that must sample it, exactly."""
    created_step: int
    attempt: int = 0
    """Claims so far."""
    max_attempts: int = 5
    """Claims after which a failing task is dead."""
    owner: str = ""
    """Sampler id of the current claim."""
    lease_until: float = 0.0
    """Store time at which the claim may be taken back."""
    rollouts: list[str] = Field(default_factory=list)
    """Ids of the chosen rollouts, in member order, when done."""
    reason: str = ""
    """Why the last attempt failed, or why the task is dead."""
