"""A rollout: a member of a group, as it was sampled and scored."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar, Literal, TypeVar

from pydantic import Field

from rl_contracts.documents.arrays import ITEM_BYTES
from rl_contracts.documents.base import Document, Record
from rl_contracts.documents.routing import Routing
from rl_contracts.documents.task import ImagePart

GREEDY_TEMPERATURE = 1.0
"""Temperature of the log-probabilities of a greedy rollout: the engine does not divide logits by
the temperature when it decodes greedily."""


class StopReason(StrEnum):
    """Why generation, or the whole episode, ended."""

    STOP = "stop"
    """The policy ended its turn."""
    LENGTH = "length"
    """The turn reached its token limit."""
    TURNS = "turns"
    """The agent's last allowed turn did not give an answer."""
    CONTEXT = "context"
    """The context was full."""
    TRUNCATED = "truncated"
    """The environment ended the episode at a limit of its own, before its goal or failure."""
    REPETITION = "repetition"
    """The policy repeated itself."""
    ERROR = "error"
    """The episode could not continue; ``error`` says why."""


class VersionSpan(Record):
    """Policy version that sampled the generated tokens among tokens [start, end) of a rollout."""

    version: int
    epoch: int = 0
    """Of the trainer that published it: with the version it names the policy, whatever backup a
    store was restored from. 0: sampled by a release that did not write it."""
    step: int
    """Training steps that the version contains."""
    start: int
    """Index into the rollout's tokens, prompt included."""
    end: int


class RewardPart(Record):
    """The value of a scorer and its weight in the reward."""

    scorer: str
    value: float
    weight: float


class RolloutError(Record):
    """Why a rollout or turn failed, as data."""

    kind: Literal["infrastructure", "model", "user"]
    """``infrastructure``: no reward, the task is sampled again; ``model``: the policy's own
    mistake, which its reward reflects; ``user``: the manifest or the data must change."""
    message: str


class TokenRange(Record):
    """Tokens [start, end) of a rollout."""

    start: int
    end: int


class ImageSpan(Record):
    """Tokens [start, end) of a rollout stand for an image: one for each square of its patches."""

    sha256: str
    """Of the stored image, whose name it is (``rl_contracts.stores.files.images``)."""
    width: int
    """Pixels of the stored image, a multiple of the side of what one token stands for."""
    height: int
    start: int
    end: int


class ToolCall(Record):
    """A tool call of the policy and its result."""

    tool: str
    arguments: str
    """JSON as the policy wrote it."""
    outcome: Literal["answered", "failed", "refused", "down"]
    """``failed``: the tool reported an error; ``refused``: unknown tool or malformed arguments;
    ``down``: the tool was not available, so the rollout is not data."""
    result: str
    images: list[ImagePart] = Field(default_factory=list)
    """Images of the result that the policy was shown, behind its text."""
    seconds: float


class Turn(Record):
    """A request to the policy and its response."""

    request: TokenRange
    """Context tokens added since the previous response in the same sequence."""
    response: TokenRange
    stop_reason: StopReason
    text: str
    """The decoded response."""
    calls: list[ToolCall] = Field(default_factory=list)
    reward: float | None = None
    """Sum of the rewards that an environment gave for its steps of this turn; None: it gave
    none."""
    error: RolloutError | None = None
    """The policy's mistake, e.g. a tool call that cannot be parsed."""
    queue_seconds: float = 0.0
    """Seconds until the engine had room."""
    generate_seconds: float = 0.0
    """Seconds of the engine's call; the group shares the first turn's."""
    tool_seconds: float = 0.0


class ProgramOutcome(Record):
    """How the program of an episode ended."""

    exit_code: int | None
    """None where it was killed: at its time limit, or with its session."""
    seconds: float
    log: str
    """Start and end of its output, bounded."""
    tests_log: str = ""
    """The same of a Harbor task's tests."""
    metrics: dict[str, float] = Field(default_factory=dict)
    """What it posted."""
    ignored: list[str] = Field(default_factory=list)
    """Fields of its requests that had no effect, such as ``temperature``."""


class EnvironmentOutcome(Record):
    """How the session with an episode's environment ended."""

    steps: int
    """That the environment answered."""
    done: bool
    """The environment ended the episode."""
    truncated: bool
    """It did so at a limit of its own."""
    state: str = ""
    """Its state at the end, as JSON, bounded; empty where it was not answered."""


class Unfinished(Record):
    """What another attempt needs, besides the tokens, to continue behind the last turn."""

    shown: list[str]
    """The messages that followed each turn, as JSON lists."""
    heard: int = 0
    """How often the user has spoken."""


class Timings(Record):
    """Seconds by phase, over all turns."""

    claimed_at: float
    """Store time; where no sampler made the rollout, when it was written."""
    generate_seconds: float
    score_seconds: float
    queue_seconds: float = 0.0
    tool_seconds: float = 0.0


class Rollout(Document):
    """A sampled episode.

    ``tokens`` holds prompt and generated tokens as packed int32; ``mask`` one byte for each token,
    1 where the policy generated it; ``logprobs`` packed float32 of the same length, the engine's
    own at the task's temperature, 0 where the mask is 0.

    Example: prompt ``[5, 6]``, output ``[7, 2]`` → tokens ``[5, 6, 7, 2]``, mask ``0 0 1 1``,
    logprobs ``[0, 0, -0.3, -0.1]``, one span ``{version: 4, step: 3, start: 2, end: 4}``.

    A turn extends the sequence of the turn before: ``[5, 6, 7, 2]`` and then the tool's result
    ``[8]`` and the second output ``[9, 2]`` → ``[5, 6, 7, 2, 8, 9, 2]`` with mask ``0 0 1 1 0 1
    1``. When earlier context was discarded, the turn starts a new sequence after the others.
    """

    collection: ClassVar[str] = "rollouts"

    run: str
    task: str
    attempt: int
    member: int
    sampler: str
    temperature: float
    greedy: bool = False
    """Decoded greedily: a baseline that is never trained."""
    tokens: bytes
    mask: bytes
    logprobs: bytes
    spans: list[VersionSpan]
    sequence_starts: list[int] = Field(default_factory=list)
    """Token indices at which the second and further sequences begin, ascending."""
    images: list[ImageSpan] = Field(default_factory=list)
    """Which tokens stand for images, ascending; an image that several sequences show is there for
    each of them."""
    turns: list[Turn] = Field(default_factory=list)
    routing: Routing | None = None
    """The engine's choices of experts, where the run asks for them."""
    text: str
    """The decoded last response, which the scorers judge."""
    answer: str | None = None
    """The start of the answer that the answer schema reads in ``text``; None if there is none."""
    stop_reason: StopReason
    """Why the episode ended."""
    error: RolloutError | None = None
    """Why there is no reward; such a rollout is not data."""
    program: ProgramOutcome | None = None
    """Only of agent kind Program."""
    environment: EnvironmentOutcome | None = None
    """Only of agent kind Environment."""
    unfinished: Unfinished | None = None
    """Under ``agent.durability: Turns``, while the episode runs or where the engine ended before
    it; ``error`` is set, too."""
    continues: str = ""
    """The unfinished rollout of an earlier attempt whose turns it replayed; empty: it replayed
    none, and an attempt above 1 began the episode again."""
    replayed_turns: int = 0
    """Its first turns, which were replayed."""
    origin: str = ""
    """Objective Offline: the rollout of an earlier run of which this is a copy. The versions of its
    spans are that run's, and their step is 0: no update of this run made them."""
    reward: float
    parts: list[RewardPart]
    timings: Timings

    @property
    def num_tokens(self) -> int:
        """Tokens, prompt included."""
        return len(self.tokens) // ITEM_BYTES

    @property
    def num_generated(self) -> int:
        """Tokens that the policy generated."""
        return self.mask.count(1)

    @property
    def sequences(self) -> list[TokenRange]:
        """Its sequences; attention never crosses their borders."""
        borders = [0, *self.sequence_starts, self.num_tokens]
        return [TokenRange(start=a, end=b) for a, b in itertools.pairwise(borders)]

    @property
    def oldest_step(self) -> int:
        """Training step of the oldest policy that generated a token; -1 without generated tokens.

        An episode that failed early may have none, and then counts as older than any bound.
        """
        return oldest_step(self.spans)


def oldest_step(spans: Iterable[VersionSpan]) -> int:
    """Training step of the oldest of the policies that generated tokens; -1 without any."""
    return min((span.step for span in spans), default=-1)


S = TypeVar("S", ImageSpan, TokenRange, VersionSpan)


def moved(places: Iterable[S], *, by: int) -> list[S]:
    """The same places, counted from another token."""
    return [
        place.model_copy(update={"start": place.start + by, "end": place.end + by})
        for place in places
    ]


def tokens_by_version(spans: Iterable[VersionSpan]) -> Counter[str]:
    """Generated tokens by policy version."""
    counted: Counter[str] = Counter()
    for span in spans:
        counted[str(span.version)] += span.end - span.start
    return counted
