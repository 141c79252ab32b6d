"""The policy calls tools until a response calls none: that one is its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_contracts.documents.rollout import StopReason, Turn
from rl_sampler.agents.member import Member
from rl_sampler.agents.turns import Place, in_turns

UNREADABLE = (
    "The tool call could not be read: it is malformed, or names a tool that is not offered. "
    "Write it again, or answer."
)
TOO_EARLY = "Do not answer yet. Go on, and use the tools."


async def tool_loop(member: Member) -> StopReason:
    """Act out an episode whose first response is there; return why it ended."""
    return await in_turns(member, _reply)


async def called(member: Member, turn: Turn, place: Place) -> Sequence[Mapping[str, Any]] | None:
    """What a response's tool calls answer; None where it calls none."""
    found = await member.calls(turn)
    if found.malformed:
        member.blame("its tool call cannot be read")
        return [{"role": "user", "content": UNREADABLE}]
    if found.calls:
        # Nobody would see what the last turn's calls answer.
        return [] if place.last else await member.use(found.calls)
    return None


async def _reply(member: Member, turn: Turn, place: Place) -> Sequence[Mapping[str, Any]] | None:
    answers = await called(member, turn, place)
    if answers is None and place.early:
        return [{"role": "user", "content": TOO_EARLY}]
    return answers
