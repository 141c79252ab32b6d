"""A rollout without its tokens and texts: what a step is planned from.

The writer of a rollout stores a summary of its arrays beside them. Whoever needs no tokens reads
the head; whoever reads the tokens makes the head again from them and compares.
"""

from __future__ import annotations

import hashlib
from typing import ClassVar, Self

from pydantic import Field

from rl_contracts.documents import trained
from rl_contracts.documents.base import Document, Record
from rl_contracts.documents.rollout import (
    RewardPart,
    Rollout,
    RolloutError,
    StopReason,
    VersionSpan,
    oldest_step,
)

SUMMARY = "summary"
"""Field of the stored rollout that only heads read."""


class SequenceSummary(Record):
    """A sequence that can be trained: one in which something was generated."""

    length: int
    """Tokens, prompt included."""
    generated: int
    sha256: str
    """Of what a trainer makes of it; see ``trained.Sequence.sha256``."""


class TurnSummary(Record):
    """A turn of the policy."""

    generated: int
    """Tokens."""
    faulty: bool = False
    """It was malformed, or repeated an earlier one."""
    reward: float | None = None
    """What an environment gave in it; None: nothing."""


class Summary(Record):
    """What a head holds of a rollout's tokens, masks, log-probabilities and turns."""

    sequences: list[SequenceSummary]
    turns: list[TurnSummary]
    """Of a rollout without turns, one for each stretch of generated tokens."""
    last_stop_reason: StopReason
    """Of the last turn, or of the rollout if it has no turns."""

    @classmethod
    def of(cls, rollout: Rollout) -> Self:
        """Summarize a rollout.

        Raises:
            IntegrityError: the lengths of its arrays do not match.
        """
        return cls(
            sequences=[
                SequenceSummary(
                    length=sequence.num_tokens,
                    generated=sequence.num_generated,
                    sha256=sequence.sha256,
                )
                for sequence in trained.unweighted_sequences(rollout)
            ],
            turns=_turns(rollout),
            last_stop_reason=(
                rollout.turns[-1].stop_reason if rollout.turns else rollout.stop_reason
            ),
        )


class RolloutHead(Document):
    """A rollout without its tokens and texts; the fields are those of ``Rollout``."""

    collection: ClassVar[str] = Rollout.collection

    run: str
    task: str
    attempt: int
    member: int
    temperature: float
    greedy: bool = False
    spans: list[VersionSpan]
    answer: str | None = None
    stop_reason: StopReason
    error: RolloutError | None = None
    reward: float
    parts: list[RewardPart] = Field(default_factory=list)
    summary: Summary

    @classmethod
    def of(cls, rollout: Rollout) -> Self:
        """The head of a whole rollout, by its tokens: a stored summary is not used.

        Raises:
            IntegrityError: the lengths of its arrays do not match.
        """
        values = {name: getattr(rollout, name) for name in cls.model_fields if name != SUMMARY}
        return cls.model_validate({**values, SUMMARY: Summary.of(rollout)})

    @property
    def num_tokens(self) -> int:
        """Tokens of its sequences, prompt included."""
        return sum(sequence.length for sequence in self.summary.sequences)

    @property
    def num_generated(self) -> int:
        """Tokens that the policy generated."""
        return sum(sequence.generated for sequence in self.summary.sequences)

    @property
    def oldest_step(self) -> int:
        """As ``Rollout.oldest_step``."""
        return oldest_step(self.spans)

    @property
    def sha256(self) -> str:
        """Digest of all of its fields: two heads with the same one plan the same step."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def _turns(rollout: Rollout) -> list[TurnSummary]:
    if rollout.turns:
        return [
            TurnSummary(
                generated=turn.response.end - turn.response.start,
                faulty=turn.error is not None,
                reward=turn.reward,
            )
            for turn in rollout.turns
        ]
    stretches = [part for part in rollout.mask.split(b"\0") if part]
    return [TurnSummary(generated=len(part)) for part in stretches]
