"""Agent ``ToolLoop``: the policy calls tools; the first response without a call is its answer."""

from __future__ import annotations

from rl_contracts.documents.rollout import StopReason, Turn
from rl_sampler.agents.final_tools import make_calls, names_final_tool
from rl_sampler.agents.member import Member
from rl_sampler.agents.turns import Messages, TurnPosition, run_turns

UNREADABLE = (
    "A tool call could not be read: it is malformed, or names a tool that is not offered. "
    "No call of this response was made. Write all its calls again, or answer."
)
TOO_EARLY = "Do not answer yet. Go on, and use the tools."


async def tool_loop(member: Member) -> StopReason:
    """Run an episode whose first response was sampled already; returns why it ended."""
    return await run_turns(member, _reply)


async def answer_tool_calls(member: Member, turn: Turn, position: TurnPosition) -> Messages | None:
    """Make a response's tool calls.

    Returns:
        Messages with the results, or the request to write a malformed call again; None where the
        response calls no tool, or one that ends the episode.
    """
    parsed = await member.calls(turn)
    if parsed.malformed:
        member.blame("its tool call cannot be read")
        return [{"role": "user", "content": UNREADABLE}]
    if not parsed.calls:
        return None
    if position.early and names_final_tool(member, parsed.calls):
        return [{"role": "user", "content": TOO_EARLY}]
    calls = await make_calls(member, parsed.calls, position)
    return None if calls is None else member.results(calls)


async def _reply(member: Member, turn: Turn, position: TurnPosition) -> Messages | None:
    messages = await answer_tool_calls(member, turn, position)
    if messages is None and position.early:
        return [{"role": "user", "content": TOO_EARLY}]
    return messages
