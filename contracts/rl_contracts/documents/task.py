"""A task: one prompt and the group of rollouts that is wanted for it."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import Field, field_serializer, field_validator

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


class ContentPart(Record):
    """A part of a message."""

    type: Literal["text"] = "text"
    text: str


class Cause(StrEnum):
    """Why an attempt ended without data, or why a group was not trained."""

    FAILED = "failed"
    """A member could not be sampled or scored."""
    LEASE = "lease"
    """Its sampler fell silent."""
    STOPPED = "stopped"
    """Its sampler was told to stop: does not count against the attempts."""
    EXPIRED = "expired"
    """Its oldest token could no longer be trained while it was being sampled."""
    PROMPT = "prompt"
    """No sampler could take it."""
    UNUSABLE = "unusable"
    """The trainer found fault with a rollout."""
    STALE = "stale"
    """Finished, but its oldest token was too old when its turn came."""
    FILTERED = "filtered"
    """Finished, but nothing could be learned from it."""
    OVER = "over"
    """The run, or the evaluation that wanted it, was over."""


class Message(Record):
    """One chat message; a bare text is taken as its only part."""

    role: str
    content: tuple[ContentPart, ...]

    @field_validator("content", mode="before")
    @classmethod
    def _of_text(cls, value: object) -> object:
        return (ContentPart(text=value),) if isinstance(value, str) else value

    @field_serializer("content")
    def _as_text(self, content: tuple[ContentPart, ...]) -> object:
        """A lone text in its short form, which is that of all earlier documents."""
        if len(content) == 1:
            return content[0].text
        return [part.model_dump() for part in content]

    @property
    def text(self) -> str:
        """All of its text."""
        return "".join(part.text for part in self.content)


class Task(Document):
    """One prompt of a run.

    Claims filter on ``run``, ``queue`` and ``state``: string equality, which every supported store
    answers from an index.
    """

    collection: ClassVar[str] = "tasks"

    run: str
    queue: Queue
    state: TaskState = TaskState.PENDING
    sequence: int
    """Position in the split's stream, ≥ 0."""
    split: Literal["train", "validation", "test"] = "train"
    dataset: str = ""
    """Name of the source in the manifest."""
    dataset_epoch: int = 0
    """Passes over that source before this one."""
    example: str
    """Id of the dataset record."""
    messages: list[Message]
    answer: str
    scorer: str = ""
    """Judges this task alone; empty: the manifest's scorers do."""
    answer_schema: str = ""
    """Empty: the manifest's."""
    scenario: list[str] = Field(default_factory=list)
    """Of a Conversation: the user's further turns, or what the simulated user wants."""
    group_size: int
    baseline: bool = False
    """One member more is wanted, number ``group_size``, sampled greedily: never trained."""
    temperature: float
    evaluation_version: int = 0
    """Evaluation only: the policy version that must sample it, exactly."""
    created_step: int
    attempt: int = 0
    """Claims so far."""
    max_attempts: int = 5
    """Claims after which a failing task is dead, those of stopped samplers not counted."""
    excused: int = 0
    """Claims that ended because their sampler was stopped."""
    minimum: int = 0
    """Finished members that suffice once ``deadline_seconds`` are over; 0: all must finish. The
    baseline is none of them: it is always waited for."""
    deadline_seconds: float = 0.0
    """Since ``first_claimed_at``."""
    first_claimed_at: float = 0.0
    """Store time."""
    owner: str = ""
    """Sampler id of the current claim."""
    claim: str = ""
    """Names the one command that made the current claim: its owner finds it again when the reply
    was lost."""
    lease_until: float = 0.0
    """Store time at which the claim may be taken back."""
    rollouts: list[str] = Field(default_factory=list)
    """Ids of the chosen rollouts, in member order, when done."""
    reason: str = ""
    """Why the last attempt failed, or why the task is dead."""
    cause: Cause | None = None
    """The same as a class, for counting."""

    @property
    def num_members(self) -> int:
        """Members that are sampled, the baseline included."""
        return self.group_size + self.baseline

    def is_baseline(self, member: int) -> bool:
        """Whether a member is the greedy one."""
        return self.baseline and member == self.group_size

    @property
    def exhausted(self) -> bool:
        """Whether the current attempt is the last one."""
        return self.attempt - self.excused >= self.max_attempts
