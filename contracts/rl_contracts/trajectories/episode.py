"""An episode as exports see it: a rollout with its task, and what a step made of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.documents.arrays import ITEM_BYTES, unpack_float32, unpack_int32
from rl_contracts.documents.batch import BatchMember
from rl_contracts.documents.rollout import Rollout, StopReason, TokenRange, Turn, VersionSpan
from rl_contracts.documents.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A rollout, its task, and its place in the batch that trained it."""

    rollout: Rollout
    task: Task | None = None
    """None if it is no longer in the store."""
    member: BatchMember | None = None
    """None if no step has trained it."""
    step: int | None = None
    """That it was trained in."""

    @property
    def turns(self) -> list[Turn]:
        """Its turns; an episode without any has one for each stretch of generated tokens."""
        return self.rollout.turns or _stretches(self.rollout)

    def tokens(self, part: TokenRange) -> list[int]:
        """Token ids of a range."""
        return unpack_int32(self.rollout.tokens[_items(part)])

    def logprobs(self, part: TokenRange) -> list[float]:
        """The engine's log-probabilities of a range of generated tokens."""
        return unpack_float32(self.rollout.logprobs[_items(part)])

    def advantages(self, part: TokenRange) -> list[float] | None:
        """Advantage of each token of a response; None if no step has trained it."""
        if self.member is None:
            return None
        count = part.end - part.start
        packed = self.member.token_advantages
        if not packed:
            return [self.member.advantage] * count
        before = self.rollout.mask[: part.start].count(1)
        return unpack_float32(packed[ITEM_BYTES * before : ITEM_BYTES * (before + count)])

    def context(self, part: TokenRange) -> TokenRange:
        """The tokens that the engine was given before it generated a response."""
        begins = [0, *self.rollout.sequence_starts]
        return TokenRange(
            start=max(start for start in begins if start <= part.start), end=part.start
        )

    def spans(self, part: TokenRange) -> list[VersionSpan]:
        """Policy versions of the tokens of a response, cut to it."""
        return [
            span.model_copy(
                update={"start": max(span.start, part.start), "end": min(span.end, part.end)}
            )
            for span in self.rollout.spans
            if span.start < part.end and span.end > part.start
        ]

    def begins_sequence(self, turn: Turn) -> bool:
        """Whether the context before a turn does not continue the turn before."""
        return self.context(turn.response).start >= turn.request.start


def _stretches(rollout: Rollout) -> list[Turn]:
    turns: list[Turn] = []
    for start, end in _generated(rollout.mask):
        before = turns[-1].response.end if turns else 0
        turns.append(
            Turn(
                request=TokenRange(start=before, end=start),
                response=TokenRange(start=start, end=end),
                stop_reason=rollout.stop_reason,
                text="",
            )
        )
    if turns:  # only the text of the last response is kept
        turns[-1] = turns[-1].model_copy(update={"text": rollout.text})
    return turns


def _generated(mask: bytes) -> list[tuple[int, int]]:
    ranges, start = [], mask.find(1)
    while start >= 0:
        end = mask.find(0, start)
        end = len(mask) if end < 0 else end
        ranges.append((start, end))
        start = mask.find(1, end)
    return ranges


def _items(part: TokenRange) -> slice:
    return slice(ITEM_BYTES * part.start, ITEM_BYTES * part.end)


def finish_reason(turn: Turn) -> str | None:
    """Why a response ended, in the words of OpenAI's API; None for other reasons."""
    if turn.calls:
        return "tool_calls"
    return {StopReason.STOP: "stop", StopReason.LENGTH: "length"}.get(turn.stop_reason)


def call_id(turn: int, call: int) -> str:
    """Id of a tool call, by its turn and its place in it."""
    return f"call-{turn}-{call}"


def of_tasks(
    rollouts: Sequence[Rollout], tasks: dict[str, Task], members: dict[str, tuple[BatchMember, int]]
) -> list[Episode]:
    """Join rollouts with their tasks and with the batch members of the step that trained them."""
    episodes = []
    for rollout in rollouts:
        member, step = members.get(rollout.id, (None, None))
        episodes.append(
            Episode(rollout=rollout, task=tasks.get(rollout.task), member=member, step=step)
        )
    return episodes
