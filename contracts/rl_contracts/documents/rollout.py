"""A rollout: one member of a group, as it was sampled and scored."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import Field

from rl_contracts.documents.arrays import ITEM_BYTES
from rl_contracts.documents.base import Document, Record

GREEDY_TEMPERATURE = 1.0
"""Of the distribution whose log-probabilities a greedy rollout has: the engine divides logits by a
temperature only where it does not decode greedily."""


class StopReason(StrEnum):
    """Why generation, or the whole episode, ended."""

    STOP = "stop"
    """The policy ended its turn."""
    LENGTH = "length"
    """The turn's token limit cut it."""
    TURNS = "turns"
    """The last turn that the agent allows was no answer."""
    CONTEXT = "context"
    """The context was full."""
    REPETITION = "repetition"
    """The policy went round in circles."""
    ERROR = "error"
    """It could not go on; ``error`` says why."""


class VersionSpan(Record):
    """Generated tokens [start, end) of a rollout were sampled by one policy version."""

    version: int
    step: int
    """Training steps that this version contains."""
    start: int
    """Index into the rollout's tokens, prompt included."""
    end: int


class RewardPart(Record):
    """What one scorer said."""

    scorer: str
    value: float
    weight: float


class RolloutError(Record):
    """What went wrong: data, not an exception."""

    kind: Literal["infrastructure", "model", "user"]
    """``infrastructure``: never a reward, sampled again; ``model``: the policy's own doing, which
    its reward tells; ``user``: the manifest or the data must change."""
    message: str


class TokenRange(Record):
    """Tokens [start, end) of a rollout."""

    start: int
    end: int


class ToolCall(Record):
    """A call that the policy made, and what it was told."""

    tool: str
    arguments: str
    """JSON as the policy wrote it."""
    outcome: Literal["answered", "failed", "refused", "down"]
    """``failed``: by the tool's own word; ``refused``: no such tool, or malformed arguments;
    ``down``: the tool did not work, so that the rollout is no data."""
    result: str
    seconds: float


class Turn(Record):
    """One request to the policy and its response."""

    request: TokenRange
    """Tokens that were put before the policy since its last response in the same sequence."""
    response: TokenRange
    stop_reason: StopReason
    text: str
    """The decoded response."""
    calls: list[ToolCall] = Field(default_factory=list)
    error: RolloutError | None = None
    """What the policy did wrong, e.g. a call that cannot be read."""
    queue_seconds: float = 0.0
    """Until the engine had room."""
    generate_seconds: float = 0.0
    """Of the engine's call; the first turn's is shared by the whole group."""
    tool_seconds: float = 0.0


class Timings(Record):
    """Seconds by phase, over all turns."""

    claimed_at: float
    """Store time."""
    generate_seconds: float
    score_seconds: float
    queue_seconds: float = 0.0
    tool_seconds: float = 0.0


class Rollout(Document):
    """One sampled episode.

    ``tokens`` holds prompt and generated tokens as packed int32; ``mask`` one byte for each token,
    1 where the policy generated it; ``logprobs`` packed float32 of the same length, the engine's
    own at the task's temperature, 0 where the mask is 0.

    Example: prompt ``[5, 6]``, output ``[7, 2]`` → tokens ``[5, 6, 7, 2]``, mask ``0 0 1 1``,
    logprobs ``[0, 0, -0.3, -0.1]``, one span ``{version: 4, step: 3, start: 2, end: 4}``.

    A turn extends the sequence of the turn before: ``[5, 6, 7, 2]`` and then the tool's result
    ``[8]`` and the second output ``[9, 2]`` → ``[5, 6, 7, 2, 8, 9, 2]`` with mask ``0 0 1 1 0 1
    1``. Where earlier context was discarded it begins a new sequence instead, behind the others.
    """

    collection: ClassVar[str] = "rollouts"

    run: str
    task: str
    attempt: int
    member: int
    sampler: str
    temperature: float
    greedy: bool = False
    """It took the most probable token each time: a baseline, never trained."""
    tokens: bytes
    mask: bytes
    logprobs: bytes
    spans: list[VersionSpan]
    sequence_starts: list[int] = Field(default_factory=list)
    """Where the second and further sequences begin, ascending."""
    turns: list[Turn] = Field(default_factory=list)
    text: str
    """The decoded last response, which is what scorers judge."""
    stop_reason: StopReason
    """Of the episode."""
    error: RolloutError | None = None
    """Why there is no reward: then this is no data."""
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
        """Its sequences: attention stays within each."""
        borders = [0, *self.sequence_starts, self.num_tokens]
        return [TokenRange(start=a, end=b) for a, b in itertools.pairwise(borders)]

    @property
    def oldest_step(self) -> int:
        """Training step of the oldest policy that generated one of its tokens; -1 where none did.

        An episode that failed early may have none, and then it is older than any bound.
        """
        return min((span.step for span in self.spans), default=-1)


def tokens_by_version(rollouts: Iterable[Rollout]) -> Counter[str]:
    """Generated tokens by the policy version that sampled them, as spans say."""
    counted: Counter[str] = Counter()
    for span in itertools.chain.from_iterable(rollout.spans for rollout in rollouts):
        counted[str(span.version)] += span.end - span.start
    return counted
