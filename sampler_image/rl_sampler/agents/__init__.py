"""Agents: each acts out an episode, from the group's first response to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rl_contracts.documents.rollout import StopReason
from rl_sampler.agents.conversation import conversation
from rl_sampler.agents.member import Member
from rl_sampler.agents.react import react
from rl_sampler.agents.single_turn import single_turn
from rl_sampler.agents.tool_loop import tool_loop

Agent = Callable[[Member], Awaitable[StopReason]]
"""Takes a member whose first response is there; returns why the episode ended."""

AGENTS: dict[str, Agent] = {
    "Conversation": conversation,
    "ReAct": react,
    "SingleTurn": single_turn,
    "ToolLoop": tool_loop,
}
"""By the manifest's ``agent.kind``."""
