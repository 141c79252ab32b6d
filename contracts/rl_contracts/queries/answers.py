"""Answers to the queries of a run's data, as JSON.

Texts of the policy and of tools are hostile: whoever shows an answer escapes them.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rl_contracts.documents.batch import BatchState, TrainedDigest
from rl_contracts.documents.evaluation import EvaluationResult
from rl_contracts.documents.image_types import image_type
from rl_contracts.documents.rollout import (
    ImageSpan,
    RewardPart,
    RolloutError,
    StopReason,
    Turn,
    VersionSpan,
)
from rl_contracts.documents.run import DatasetSummary, LearningSignal, Notice, Outcome
from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.documents.task import Cause, Queue, TaskState
from rl_contracts.queries.kinds import MOST_IMAGE_BYTES


class Answer(BaseModel):
    """Base of all answers; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class SamplerRow(Answer):
    """A sampler's registration, as of its last heartbeat."""

    pool: str
    pod: str
    state: str
    alive: bool
    version: int
    step: int
    groups_running: int
    groups_done: int
    groups_failed: int
    tokens_per_second: float
    updates: int
    pause_seconds_last: float
    last_error: str
    unavailable: dict[str, str]


class SummaryAnswer(Answer):
    """A run as its documents have it."""

    now: float
    """Store time, seconds since 1970."""
    created_at: float
    step: int
    steps: int
    phase: str
    epoch: int
    trainers: int
    policy_version: int
    policy_step: int
    durable_step: int
    head_batch: str | None
    heartbeat_at: float
    latest: StepMetrics | None
    learning_signal: LearningSignal | None
    notices: list[Notice]
    outcome: Outcome | None
    evaluations: list[EvaluationResult]
    datasets: list[DatasetSummary]
    samplers: list[SamplerRow]
    samplers_died: int
    open_tasks: int
    batches_below: int
    """Batches of lower steps are deleted."""


class Series(Answer):
    """A column, summarized: one item for each bucket of steps."""

    mean: list[float | None]
    low: list[float | None] = []
    """Least value of the bucket; empty where every bucket is one step."""
    high: list[float | None] = []


class MetricsAnswer(Answer):
    """Step metrics; ``steps`` holds the last step of each bucket."""

    steps: list[int]
    times: list[float]
    """Store time of these steps."""
    series: dict[str, Series]
    names: list[str]
    """All columns that there are."""
    first: int
    """Oldest step with metrics; 0 without any."""
    last: int
    rows: int
    """Steps in the range that was asked for."""


class RolloutRow(Answer):
    """A rollout within a list."""

    id: str
    member: int
    attempt: int
    sampler: str
    reward: float
    parts: list[RewardPart]
    stop_reason: StopReason
    error: RolloutError | None
    text: str
    """The last response, up to ``TEXT_CHARS``."""
    cut: bool
    """The text is longer."""
    answer: str | None
    versions: list[int]
    turns: int
    calls: int
    seconds: float
    advantage: float | None = None
    """Mean over its tokens; None: not trained."""
    weight: float | None = None
    step: int | None = None
    """Step that trained it, where the query knows it."""
    greedy: bool = False


class GroupRow(Answer):
    """A task, and its members where they are read."""

    task: str
    sequence: int
    split: str
    dataset: str
    example: str
    prompt: list[tuple[str, str]]
    """Role and text of each message, up to ``TEXT_CHARS`` each."""
    expected: str
    queue: Queue
    state: TaskState
    cause: Cause | None
    reason: str
    attempt: int
    owner: str
    group_size: int
    created_step: int
    rollouts: list[RolloutRow] = []
    rollout_ids: list[str] = []


class StepAnswer(Answer):
    """The batch of a step; ``batch`` is empty where it is deleted or not formed."""

    batch: str = ""
    step: int
    epoch: int = 0
    parent: str | None = None
    state: BatchState | None = None
    formed_at: float = 0.0
    digest: TrainedDigest | None = None
    members: int = 0
    groups: int = 0
    first_group: int = 0
    first_prompt: int = 0
    """Lowest position of its prompts in the stream."""
    end_prompt: int = 0
    """First position that belongs to the next batch: prompts from ``first_prompt`` up to it that
    are not in the batch were dropped beside it, or are in another one. 0: not known."""
    metrics: StepMetrics | None = None
    rows: list[GroupRow] = []
    problem: str = ""


class PromptsAnswer(Answer):
    """Tasks of consecutive positions; positions without a task are left out."""

    rows: list[GroupRow]
    first: int
    next_sequence: int
    """First position of the train stream that is not trained or handed out in the newest batch."""


class Tokens(Answer):
    """Tokens of a rollout from ``first`` on; all lists have the same length."""

    first: int
    total: int
    ids: list[int]
    texts: list[str]
    """Empty: the tokenizer could not be read."""
    mask: list[int]
    logprobs: list[float | None]
    """The engine's, at the task's temperature; None where the policy did not generate."""
    advantages: list[float | None]
    """None where the token was not trained."""
    returns: list[float | None]
    """Targets of the critic; empty without a critic."""
    versions: list[int | None]
    gaps: list[float | None] = []
    """Log-probability by the trainer, as its step first met the token, minus the engine's, in nats;
    empty where nothing is stored. From float16: three digits."""
    entropies: list[float | None] = []
    """Of the trainer's distribution of the token, in nats; as ``gaps``."""


class RolloutAnswer(Answer):
    """A rollout with its group and the batch that trained it."""

    row: RolloutRow
    group: GroupRow | None
    run: str
    temperature: float
    tokens: Tokens
    sequence_starts: list[int]
    turns: list[Turn]
    spans: list[VersionSpan]
    images: list[ImageSpan] = []
    """Which tokens stand for images; ``ImageQuery`` asks for one of these."""
    batch: StepAnswer | None
    """Without rows; None: no batch is known that holds it."""
    fate: str
    """What became of it, as a sentence."""
    tokenizer_problem: str = ""
    values_problem: str = ""
    """Why gaps and entropies are missing; empty where they are there."""


class ImageAnswer(Answer):
    """An image: a PNG, JPEG or WebP file by its first bytes, whoever has sent the answer."""

    content: Annotated[str, Field(max_length=MOST_IMAGE_BYTES // 3 * 4 + 4)]
    """The file in base64."""

    @field_validator("content")
    @classmethod
    def _check_type(cls, content: str) -> str:
        if image_type(base64.b64decode(content, validate=True)) is None:
            raise ValueError("it is no PNG, JPEG or WebP file")
        return content

    @property
    def file(self) -> bytes:
        """Content of the file."""
        return base64.b64decode(self.content)

    @property
    def media_type(self) -> str:
        """``image/png``, ``image/jpeg`` or ``image/webp``."""
        kind = image_type(self.file)
        assert kind is not None  # checked when it was made
        return kind


class SearchAnswer(Answer):
    """Hits, and where the search ended."""

    hits: list[RolloutRow]
    read: int
    """Rollouts that were read."""
    next_last: int | None
    """Ask again with ``last`` set to this; None: the whole range was looked through."""
    next_skip: int = 0
    """And with ``skip`` set to this; 0 where the search had no ``skip``."""


class PolicyRow(Answer):
    """A published version."""

    version: int
    epoch: int
    step: int
    published_at: float
    publish_seconds: float
    size_bytes: int
    content: str
    base_version: int
    prefix: str
    manifest_sha256: str
    kept: bool
    """Retention has not marked it for deletion."""
    serving: int
    """Living samplers whose engine serves it."""
    staging: int
    """Living samplers that load it."""


class PoliciesAnswer(Answer):
    """Versions, the newest first."""

    rows: list[PolicyRow]
    next_before: int | None
    newest: int


class ReportAnswer(Answer):
    """The report as it is written."""

    report: dict[str, Any] | None
    """None: the run has not ended, or its report is larger than ``MOST_REPORT_BYTES``."""


class NotFound(Answer):
    """The run, or the document that a query names, does not exist (any more)."""

    missing: str


ANSWERS: dict[str, type[Answer]] = {
    "summary": SummaryAnswer,
    "metrics": MetricsAnswer,
    "step": StepAnswer,
    "prompts": PromptsAnswer,
    "rollout": RolloutAnswer,
    "image": ImageAnswer,
    "search": SearchAnswer,
    "policies": PoliciesAnswer,
    "report": ReportAnswer,
}
"""By the kind of query."""


def parse_answer(kind: str, values: Any) -> Answer:
    """The answer to a query of a kind; pydantic's ValidationError where it has another form."""
    if isinstance(values, dict) and set(values) == {"missing"}:
        return NotFound.model_validate(values)
    return ANSWERS[kind].model_validate(values)
