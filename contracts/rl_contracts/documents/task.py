"""A task: a prompt and the group of rollouts to sample for it."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, ClassVar, Literal

from pydantic import Field, field_serializer, field_validator

from rl_contracts.documents.base import Document, Record
from rl_contracts.documents.harbor import HarborTask


class TaskState(StrEnum):
    """State of a task."""

    PENDING = "pending"
    """Not attempted yet."""
    RETRY = "retry"
    """An attempt ended without a whole group; claimed before pending tasks."""
    CLAIMED = "claimed"
    DONE = "done"
    """Its group is complete: ``rollouts`` are data."""
    DEAD = "dead"
    """It will never be data; ``reason`` says why."""


class Queue(StrEnum):
    """Which samplers may claim a task, and whether the trainer still needs it."""

    TRAIN = "train"
    EVALUATION = "evaluation"
    """Only a sampler that serves the published version may claim it."""
    CONSUMED = "consumed"
    """Trained, evaluated or dropped: kept for the audit."""


class ContentPart(Record):
    """A text part of a message."""

    type: Literal["text"] = "text"
    text: str


class ImagePart(Record):
    """An image in a message: as a record names it, then as it is stored."""

    type: Literal["image"] = "image"
    source: str = ""
    """URI or path in the record; empty once the image is stored."""
    sha256: str = ""
    """Of the stored image, whose name it is; empty before."""
    width: int = 0
    """Pixels of the stored image."""
    height: int = 0


Part = ContentPart | ImagePart


class Cause(StrEnum):
    """Class of reasons why an attempt gave no data or a group was not trained."""

    FAILED = "failed"
    """A member could not be sampled or scored."""
    LEASE = "lease"
    """The sampler's lease ran out."""
    STOPPED = "stopped"
    """The sampler was stopped; this does not count against the attempts."""
    EXPIRED = "expired"
    """Its oldest token became too stale while it was being sampled."""
    PROMPT = "prompt"
    """No sampler can process the prompt."""
    UNUSABLE = "unusable"
    """The trainer rejected a rollout."""
    STALE = "stale"
    """Finished, but its oldest token was too stale when the trainer got to it."""
    FILTERED = "filtered"
    """Finished, but it carried no learning signal."""
    OVER = "over"
    """The run, the evaluation or its manifest ended before it was needed."""


class Message(Record):
    """A chat message; a plain string becomes its only part."""

    role: str
    content: tuple[Part, ...]

    @field_validator("content", mode="before")
    @classmethod
    def _of_text(cls, value: object) -> object:
        return (ContentPart(text=value),) if isinstance(value, str) else value

    @field_serializer("content")
    def _as_text(self, content: tuple[Part, ...]) -> object:
        """A single text part as a string, the form of all earlier documents."""
        if len(content) == 1 and isinstance(content[0], ContentPart):
            return content[0].text
        return [part.model_dump() for part in content]

    @property
    def text(self) -> str:
        """The text of all text parts."""
        return "".join(part.text for part in self.content if isinstance(part, ContentPart))

    @property
    def images(self) -> list[ImagePart]:
        """Its images, in their order."""
        return [part for part in self.content if isinstance(part, ImagePart)]

    @property
    def chat(self) -> dict[str, object]:
        """The form that chat templates take; parts only where there is an image."""
        if not self.images:
            return {"role": self.role, "content": self.text}
        return {"role": self.role, "content": [chat_part(part) for part in self.content]}

    def with_text(self, text: str, *, before: bool = False) -> Message:
        """The message with another text part, behind the others or before them."""
        added = ContentPart(text=text)
        content = (added, *self.content) if before else (*self.content, added)
        return Message(role=self.role, content=content)


def chat_part(part: Part) -> dict[str, object]:
    """A part in the form that chat templates take; that of a stored image has its size, too."""
    if isinstance(part, ContentPart):
        return {"type": "text", "text": part.text}
    size = {"width": part.width, "height": part.height}
    return {"type": "image", "image": part.sha256, **size}


class HeldTask(Document):
    """The fields of a task that say which claim holds it, and for how long."""

    collection: ClassVar[str] = "tasks"

    run: str
    queue: Queue
    attempt: int = 0
    """Number of claims so far."""
    max_attempts: int = 5
    """Claims after which a failing task is dead; claims of stopped samplers do not count."""
    excused: int = 0
    """Claims that ended because the sampler was stopped."""
    owner: str = ""
    """Sampler id of the current claim."""
    lease_until: float = 0.0
    """Store time after which the claim may be taken back."""
    policy_step: int = -1
    """Training steps of the policy that its sampler served when it made the current claim: no token
    that this attempt samples is older; what it takes over from earlier ones may be. -1: never
    claimed, or by a release that did not write it."""

    @property
    def exhausted(self) -> bool:
        """Whether the current attempt is the last."""
        return self.attempt - self.excused >= self.max_attempts


class Task(HeldTask):
    """A prompt of a run and its group of rollouts.

    Claims filter on ``run``, ``queue`` and ``state`` by string equality, which every supported
    store answers from an index.
    """

    state: TaskState = TaskState.PENDING
    sequence: int
    """Position in the split's stream, ≥ 0."""
    split: Literal["train", "validation", "test"] = "train"
    dataset: str = ""
    """Name of the source in the manifest."""
    dataset_epoch: int = 0
    """Passes over the source before this task."""
    example: str
    """Id of the dataset record."""
    messages: list[Message]
    answer: str
    scorer: str = ""
    """Scorer of this task; empty: the manifest's scorers."""
    answer_schema: str = ""
    """Answer schema of this task; empty: the manifest's."""
    scenario: list[str] = Field(default_factory=list)
    """Conversation agents: the user's further turns, or the goal of the simulated user."""
    fields: str = ""
    """Fields of the record for the user's code, as a JSON object; empty: none. As text: the store
    takes neither all numbers nor all names of JSON."""
    harbor: HarborTask | None = None
    """What its pod needs, where the record is a Harbor task."""
    group_size: int
    baseline: bool = False
    """Sample an additional member, number ``group_size``, greedily; it is never trained."""
    temperature: float
    """Sampling temperature; 0, in evaluations only: greedy."""
    evaluation_version: int = 0
    """Evaluation only: the policy version that must sample it."""
    created_step: int
    minimum: int = 0
    """Finished members that suffice after ``deadline_seconds``; 0: all must finish. The baseline
    does not count: it must always finish."""
    deadline_seconds: float = 0.0
    """Seconds since ``first_claimed_at``."""
    first_claimed_at: float = 0.0
    """Store time."""
    claim: str = ""
    """Token of the command that made the current claim; its owner uses it to recover a claim whose
    reply was lost."""
    rollouts: list[str] = Field(default_factory=list)
    """Ids of the chosen rollouts in member order; set when done."""
    reason: str = ""
    """Why the last attempt failed, or why the task is dead."""
    cause: Cause | None = None
    """Class of ``reason``, for counting."""

    @property
    def num_members(self) -> int:
        """Members that are sampled, the baseline included."""
        return self.group_size + self.baseline

    def is_baseline(self, member: int) -> bool:
        """Whether a member is the greedy baseline."""
        return self.baseline and member == self.group_size

    @property
    def record_fields(self) -> dict[str, Any]:
        """``fields``, parsed."""
        fields: dict[str, Any] = json.loads(self.fields) if self.fields else {}
        return fields

    def is_greedy(self, member: int) -> bool:
        """Whether a member takes the most probable tokens: a baseline, or temperature 0."""
        return self.temperature == 0 or self.is_baseline(member)
