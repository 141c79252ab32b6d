"""Queries of a run's data, as JSON, and their limits.

Each query reads a bounded number of documents by id.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from rl_contracts.documents.rollout import StopReason

MOST_POINTS = 2000
MOST_COLUMNS = 64
GROUPS_PER_PAGE = 8
PROMPTS_PER_PAGE = 64
POLICIES_PER_PAGE = 100
MOST_HITS = 100
MOST_SAMPLERS = 500
STEPS_PER_SEARCH = 256
"""Batches that one search reads; its answer says from which step to go on."""
ROLLOUTS_PER_SEARCH = 2048
TEXT_CHARS = 2000
"""Of a text in a list of rollouts; a rollout alone comes with up to ``MOST_TEXT_CHARS``."""
MOST_TEXT_CHARS = 200_000
MOST_REPORT_BYTES = 4 << 20
MOST_IMAGE_BYTES = 5 << 20
"""Of an image: with base64 it fits an answer of a reader. One with ``spec.data.images.maxPixels``
as it is by default has at most 3 MiB."""
MOST_TOKENS = 65_536
"""Of one answer; ``first_token`` asks for the others."""

Step = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Message(BaseModel):
    """Base of all queries."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SummaryQuery(Message):
    """The run document, its samplers and its evaluations."""

    kind: Literal["summary"] = "summary"


class MetricsQuery(Message):
    """Step metrics in [first, last], summarized where there are more steps than points."""

    kind: Literal["metrics"] = "metrics"
    columns: Annotated[tuple[str, ...], Field(max_length=MOST_COLUMNS)] = ()
    """Names of ``documents.metric_columns``, also prefixes with a dot (``reward_parts.``)."""
    first: Step = 0
    last: Step | None = None
    """None: to the newest step."""
    points: Annotated[int, Field(ge=1, le=MOST_POINTS)] = 600


class StepQuery(Message):
    """The batch of a step, and some of its groups."""

    kind: Literal["step"] = "step"
    step: Annotated[int, Field(ge=1, le=2**31 - 1)]
    first_group: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class PromptsQuery(Message):
    """Tasks by their position in a stream, whether trained, dropped or waiting."""

    kind: Literal["prompts"] = "prompts"
    split: Literal["train", "validation", "test"] = "train"
    first: Annotated[int, Field(ge=0, le=99_999_999)] = 0
    count: Annotated[int, Field(ge=1, le=PROMPTS_PER_PAGE)] = PROMPTS_PER_PAGE


class RolloutQuery(Message):
    """One rollout, token by token."""

    kind: Literal["rollout"] = "rollout"
    rollout: Annotated[str, Field(min_length=1, max_length=300)]
    step: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Where it was trained, if known; else the steps after its policy's are looked through."""
    first_token: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


class ImageQuery(Message):
    """An image that a rollout shows."""

    kind: Literal["image"] = "image"
    rollout: Annotated[str, Field(min_length=1, max_length=300)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """As the rollout names it; no other object is read."""


class SearchQuery(Message):
    """Trained rollouts of the steps [first, last] that meet all conditions, newest step first."""

    kind: Literal["search"] = "search"
    first: Step = 0
    last: Step | None = None
    text: Annotated[str, Field(max_length=200)] = ""
    """Part of the last response or of any response of a turn, whatever its case."""
    tool: Annotated[str, Field(max_length=200)] = ""
    """Part of the name of a tool that was called."""
    reward_min: float | None = None
    reward_max: float | None = None
    stop_reason: StopReason | None = None
    errors: bool = False
    """Only rollouts in which a turn or a tool failed."""
    most: Annotated[int, Field(ge=1, le=MOST_HITS)] = 50
    skip: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Rollouts of the step ``last`` that an earlier search has looked through. None: each step is
    looked through whole, so there may be more than ``most``."""


class PoliciesQuery(Message):
    """Published versions from the newest, or from ``before``, downward."""

    kind: Literal["policies"] = "policies"
    before: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


class ReportQuery(Message):
    """The report that the trainer writes at the end of a run."""

    kind: Literal["report"] = "report"


Query = Annotated[
    SummaryQuery
    | MetricsQuery
    | StepQuery
    | PromptsQuery
    | RolloutQuery
    | ImageQuery
    | SearchQuery
    | PoliciesQuery
    | ReportQuery,
    Field(discriminator="kind"),
]
QUERY: TypeAdapter[Query] = TypeAdapter(Query)
