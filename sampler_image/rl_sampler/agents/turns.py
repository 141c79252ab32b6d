"""The loop over turns that agents of several turns share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_contracts.documents.rollout import StopReason, Turn
from rl_sampler.agents.context import show
from rl_sampler.agents.member import Member

Messages = Sequence[Mapping[str, Any]]


class Repetition:
    """Counts responses that repeat an earlier response of the episode."""

    def __init__(self, *, limit: int) -> None:
        """Begin an episode; it should end after ``limit`` repeated responses."""
        self._limit = limit
        self._seen: set[str] = set()
        self.count = 0

    def note(self, response: str) -> bool:
        """Record a response's text; returns whether it repeats an earlier response.

        Differences in white space do not count.
        """
        key = " ".join(response.split())
        repeats = key in self._seen
        self._seen.add(key)
        self.count += repeats
        return repeats

    @property
    def too_many(self) -> bool:
        """Whether the episode should end."""
        return self.count >= self._limit


@dataclass(frozen=True, slots=True)
class TurnPosition:
    """Where in the episode a turn is."""

    early: bool
    """``minTurns`` is not reached: an answer is too early."""
    last: bool
    """``maxTurns`` is reached: the policy never sees a reply to this turn."""


Reply = Callable[[Member, Turn, TurnPosition], Awaitable[Messages | None]]
"""Returns the messages that answer a response; None where the response ends the episode."""


async def single_turn(member: Member) -> StopReason:
    """Agent ``SingleTurn``: the first response is the whole episode."""
    return member.turns[-1].stop_reason


async def run_turns(member: Member, reply: Reply) -> StopReason:
    """Run an episode, whose first response was sampled already, turn by turn.

    Turns that were replayed are over: it goes on with the response to the last of them.

    Args:
        member: the episode.
        reply: answers each response.

    Returns:
        Why the episode ended.
    """
    repetition = Repetition(limit=member.agent.repetitions)
    over = member.replayed_turns
    for replayed in member.turns[:over]:
        repetition.note(replayed.text)
    turn = await member.respond() if over else member.turns[-1]
    for number in range(over + 1, member.agent.turns + 1):
        if turn.stop_reason is not StopReason.STOP:
            return turn.stop_reason if member.room > 0 else StopReason.CONTEXT
        if repetition.note(turn.text):
            member.blame("it repeats an earlier response")
            if repetition.too_many:
                return StopReason.REPETITION
        if member.generated_placeholder:
            member.blame("it generated the placeholder of an image")
            return StopReason.STOP
        position = TurnPosition(number < member.agent.fewest_turns, number == member.agent.turns)
        messages = await reply(member, turn, position)
        if messages is None:
            return StopReason.STOP
        if position.last:
            break
        if not await show(member, messages):
            return StopReason.CONTEXT
        member.finish_turn(messages)
        turn = await member.respond()
    return StopReason.TURNS
