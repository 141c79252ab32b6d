"""Agent ``Conversation``: the policy talks with a user, and may call tools in between."""

from __future__ import annotations

from rl_contracts.documents.rollout import StopReason, Turn
from rl_sampler.agents.member import Member
from rl_sampler.agents.tool_loop import answer_tool_calls
from rl_sampler.agents.turns import Messages, TurnPosition, run_turns


async def conversation(member: Member) -> StopReason:
    """Run an episode whose first response was sampled already; returns why it ended."""
    return await run_turns(member, _reply)


async def _reply(member: Member, turn: Turn, position: TurnPosition) -> Messages | None:
    if member.tools.listed:
        messages = await answer_tool_calls(member, turn, position)
        if messages is not None:
            return messages
    text = await member.listen()
    return None if text is None else [member.chat.outside_message("user", text)]
