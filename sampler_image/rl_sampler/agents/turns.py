"""Turn after turn until one is the answer: what agents of several turns have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_contracts.documents.rollout import StopReason, Turn
from rl_sampler.agents.context import show
from rl_sampler.agents.member import Member
from rl_sampler.agents.repetition import Repetition


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the episode a turn is."""

    early: bool
    """``minTurns`` says that it is too early for an answer."""
    last: bool
    """``maxTurns`` allows no further one: what is replied is never shown."""


Reply = Callable[[Member, Turn, Place], Awaitable[Sequence[Mapping[str, Any]] | None]]
"""What follows a response; None where it ends the episode as it should end."""


async def in_turns(member: Member, reply: Reply) -> StopReason:
    """Act out an episode whose first response is there; return why it ended."""
    repetition = Repetition(limit=member.agent.repetitions)
    turn = member.turns[-1]
    for number in range(1, member.agent.turns + 1):
        if turn.stop_reason is not StopReason.STOP:
            return turn.stop_reason if member.room > 0 else StopReason.CONTEXT
        if repetition.note(turn.text):
            member.blame("it repeats an earlier response")
            if repetition.too_many:
                return StopReason.REPETITION
        place = Place(number < member.agent.fewest_turns, number == member.agent.turns)
        messages = await reply(member, turn, place)
        if messages is None:
            return StopReason.STOP
        if place.last:
            break
        if not await show(member, messages):
            return StopReason.CONTEXT
        turn = await member.respond()
    return StopReason.TURNS
