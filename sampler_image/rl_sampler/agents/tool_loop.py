"""The policy calls tools until a response calls none: that one is its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_contracts.documents.rollout import StopReason, Turn
from rl_sampler.agents.context import show
from rl_sampler.agents.member import Member
from rl_sampler.agents.repetition import Repetition

UNREADABLE = (
    "The tool call could not be read: it is malformed, or names a tool that is not offered. "
    "Write it again, or answer."
)
TOO_EARLY = "Do not answer yet. Go on, and use the tools."


async def tool_loop(member: Member) -> StopReason:
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
        last = number == member.agent.turns
        reply = await _reply(member, turn, early=number < member.agent.fewest_turns, last=last)
        if reply is None:
            return StopReason.STOP
        if last:
            break
        if not await show(member, reply):
            return StopReason.CONTEXT
        turn = await member.respond()
    return StopReason.TURNS


async def _reply(
    member: Member, turn: Turn, *, early: bool, last: bool
) -> Sequence[Mapping[str, Any]] | None:
    """What follows a response; None where it is the answer."""
    found = await member.calls(turn)
    if found.malformed:
        member.blame("its tool call cannot be read")
        return [{"role": "user", "content": UNREADABLE}]
    if found.calls:
        # Nobody would see what the last turn's calls answer.
        return [] if last else await member.use(found.calls)
    return [{"role": "user", "content": TOO_EARLY}] if early else None
