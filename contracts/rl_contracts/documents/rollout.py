"""A rollout: one member of a group, as it was sampled and scored."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from rl_contracts.documents.arrays import ITEM_BYTES
from rl_contracts.documents.base import Document, Record


class StopReason(StrEnum):
    """Why generation ended."""

    STOP = "stop"
    """The policy ended its turn."""
    LENGTH = "length"
    """The token limit cut it."""


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
    """Why a member has no reward: data, not an exception."""

    kind: Literal["infrastructure", "model", "user"]
    message: str


class Timings(Record):
    """Seconds by phase."""

    claimed_at: float
    """Store time."""
    generate_seconds: float
    score_seconds: float


class Rollout(Document):
    """One sampled episode.

    ``tokens`` holds prompt and generated tokens as packed int32; ``mask`` one byte for each token,
    1 where the policy generated it; ``logprobs`` packed float32 of the same length, the engine's
    own at the task's temperature, 0 where the mask is 0.

    Example: prompt ``[5, 6]``, output ``[7, 2]`` → tokens ``[5, 6, 7, 2]``, mask ``0 0 1 1``,
    logprobs ``[0, 0, -0.3, -0.1]``, one span ``{version: 4, step: 3, start: 2, end: 4}``.
    """

    run: str
    task: str
    attempt: int
    member: int
    sampler: str
    temperature: float
    tokens: bytes
    mask: bytes
    logprobs: bytes
    spans: list[VersionSpan]
    text: str
    """The decoded response."""
    stop_reason: StopReason
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
    def oldest_step(self) -> int:
        """Training step of the oldest policy that generated one of its tokens."""
        return min(span.step for span in self.spans)
