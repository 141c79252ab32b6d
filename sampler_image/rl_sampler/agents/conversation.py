"""The policy speaks with a user, and may call tools in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_contracts.documents.rollout import StopReason, Turn
from rl_sampler.agents.member import Member
from rl_sampler.agents.tool_loop import called
from rl_sampler.agents.turns import Place, in_turns


async def conversation(member: Member) -> StopReason:
    """Act out an episode whose first response is there; return why it ended."""
    return await in_turns(member, _reply)


async def _reply(member: Member, turn: Turn, place: Place) -> Sequence[Mapping[str, Any]] | None:
    answers = await called(member, turn, place) if member.tools.listed else None
    if answers is not None:
        return answers
    said = await member.listen()
    return None if said is None else [member.chat.said("user", said)]
