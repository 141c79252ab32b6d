"""A finished turn of an episode that is not over, as it is saved under ``agent.durability: Turns``.

Each document holds one turn and the tokens that it added, so an episode costs bytes in proportion
to its length, however many turns it has. The turns of a member form a tree: a turn stands behind
another one's tokens, or begins a sequence. Agents that act turn by turn have one sequence; a
program's requests may branch (``rl_sampler.gateway.tree``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from rl_contracts.documents.arrays import ITEM_BYTES
from rl_contracts.documents.base import Document
from rl_contracts.documents.rollout import (
    ImageSpan,
    Rollout,
    RolloutError,
    StopReason,
    Timings,
    TokenRange,
    Turn,
    Unfinished,
    VersionSpan,
    moved,
)
from rl_contracts.documents.routing import Choices, assembled


class SavedTurn(Document):
    """A turn, with the tokens that follow those of the turn before it.

    The tokens of an agent's first turn are its prompt, its response and what was shown behind that;
    those of a later turn are its response and what was shown behind that. Indices into tokens count
    from this turn's first token.
    """

    collection: ClassVar[str] = "turns"

    run: str
    task: str
    attempt: int
    member: int
    rollout: str
    """Id that the member's rollout has, or would have."""
    sampler: str
    temperature: float
    greedy: bool = False
    claimed_at: float
    """Store time of the claim."""
    number: int
    """From 0, in the order in which the member's turns ended."""
    through: int
    """Turns that were saved when this one was written: those that were written together count
    together, or not at all."""
    after: int | None
    """The turn behind whose tokens it stands; None: it begins a sequence."""
    tokens: bytes
    """int32, as those of ``Rollout``."""
    mask: bytes
    logprobs: bytes
    spans: list[VersionSpan]
    images: list[ImageSpan]
    turn: Turn
    routing: Choices | None = None
    routed_from: int = 0
    """First token of ``routing``; negative: a token of the turn before, which was run only now."""
    shown: str
    """The messages that followed the response, as a JSON list."""
    heard: int
    """How often the user had spoken."""

    @property
    def num_tokens(self) -> int:
        """Tokens that it adds."""
        return len(self.tokens) // ITEM_BYTES


def unfinished(saved: Iterable[SavedTurn], *, message: str = "") -> Rollout | None:
    """The member of which turns were saved, as far as they are there without a gap.

    Args:
        saved: turns of one attempt of a member, in any order.
        message: why it is not finished; by default how many turns it has.

    Returns:
        A rollout with ``unfinished`` and an error; None where no turn can be used.
    """
    turns = _usable({turn.number: turn for turn in saved})
    if not turns:
        return None
    last = turns[-1]
    whole = _Whole(turns)
    return Rollout(
        id=last.rollout,
        run=last.run,
        task=last.task,
        attempt=last.attempt,
        member=last.member,
        sampler=last.sampler,
        temperature=last.temperature,
        greedy=last.greedy,
        tokens=bytes(whole.tokens),
        mask=bytes(whole.mask),
        logprobs=bytes(whole.logprobs),
        spans=whole.spans,
        sequence_starts=whole.starts[1:],
        images=whole.images,
        turns=whole.turns,
        routing=assembled(whole.routing, tokens=len(whole.mask)),
        text=whole.turns[-1].text,
        stop_reason=StopReason.ERROR,
        error=RolloutError(
            kind="infrastructure",
            message=message or f"it was not finished after turn {len(turns)}",
        ),
        unfinished=Unfinished(shown=[turn.shown for turn in turns], heard=last.heard),
        reward=0.0,
        parts=[],
        timings=Timings(
            claimed_at=last.claimed_at,
            generate_seconds=math.fsum(turn.turn.generate_seconds for turn in turns),
            score_seconds=0.0,
            queue_seconds=math.fsum(turn.turn.queue_seconds for turn in turns),
            tool_seconds=math.fsum(turn.turn.tool_seconds for turn in turns),
        ),
    )


def _usable(saved: Mapping[int, SavedTurn]) -> list[SavedTurn]:
    """The longest beginning without a gap that holds all turns that were written together."""
    turns: list[SavedTurn] = []
    while len(turns) in saved:
        turns.append(saved[len(turns)])
    present = len(turns)
    while turns and turns[-1].through > present:
        turns.pop()
    return turns


class _Whole:
    """The sequences of a member's turns, one after the other, as a rollout has them."""

    def __init__(self, turns: Sequence[SavedTurn]) -> None:
        self._saved = turns
        self._children: dict[int | None, list[int]] = {}
        for turn in turns:
            self._children.setdefault(turn.after, []).append(turn.number)
        self.tokens, self.mask, self.logprobs = bytearray(), bytearray(), bytearray()
        self.spans: list[VersionSpan] = []
        self.images: list[ImageSpan] = []
        self.routing: list[tuple[int, Choices]] = []
        self.starts: list[int] = []
        self.turns: list[Turn] = []
        for sequence in sorted(self._sequences(), key=lambda numbers: numbers[-1]):
            self._add(sequence)

    def _sequences(self) -> Iterable[list[int]]:
        """Numbers of the turns of each sequence: a turn's first child continues its sequence."""
        for parent, children in self._children.items():
            for begins in children if parent is None else children[1:]:
                numbers = [begins]
                while following := self._children.get(numbers[-1]):
                    numbers.append(following[0])
                yield numbers

    def _add(self, numbers: Sequence[int]) -> None:
        self.starts.append(len(self.mask))
        for number in self._before(numbers[0]):
            self._show(self._saved[number])
        begins = self.starts[-1]
        for number in numbers:
            begins = self._take(self._saved[number], request_from=begins)

    def _before(self, number: int) -> list[int]:
        """The turns on the way to one, from the first on."""
        path: list[int] = []
        parent = self._saved[number].after
        while parent is not None:
            path.append(parent)
            parent = self._saved[parent].after
        return path[::-1]

    def _show(self, saved: SavedTurn) -> None:
        """Append tokens that another sequence generated."""
        start = self._append(saved)
        self.mask[start:] = bytes(saved.num_tokens)
        self.logprobs[ITEM_BYTES * start :] = bytes(len(saved.logprobs))

    def _take(self, saved: SavedTurn, *, request_from: int) -> int:
        """Append a turn; returns where its response ends."""
        start = self._append(saved)
        self.spans += moved(saved.spans, by=start)
        (response,) = moved([saved.turn.response], by=start)
        request = TokenRange(start=request_from, end=response.start)
        self.turns.append(saved.turn.model_copy(update={"request": request, "response": response}))
        return response.end

    def _append(self, saved: SavedTurn) -> int:
        start = len(self.mask)
        self.tokens += saved.tokens
        self.mask += saved.mask
        self.logprobs += saved.logprobs
        self.images += moved(saved.images, by=start)
        if saved.routing is not None:
            self.routing.append((start + saved.routed_from, saved.routing))
        return start
