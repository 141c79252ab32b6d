"""Agents: each acts out an episode, from the group's first response to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rl_contracts.documents.rollout import StopReason
from rl_contracts.documents.task import Message
from rl_sampler.agents import code, react
from rl_sampler.agents.conversation import conversation
from rl_sampler.agents.member import Member
from rl_sampler.agents.single_turn import single_turn
from rl_sampler.agents.tool_loop import tool_loop
from rl_sampler.tools.tool import Tool

Agent = Callable[[Member], Awaitable[StopReason]]
"""Takes a member whose first response is there; returns why the episode ended."""

AGENTS: dict[str, Agent] = {
    "Code": code.code,
    "Conversation": conversation,
    "ReAct": react.react,
    "SingleTurn": single_turn,
    "ToolLoop": tool_loop,
}
"""By the manifest's ``agent.kind``."""
IN_TEXT: dict[str, Callable[[Sequence[Tool]], str]] = {
    "Code": code.instructions,
    "ReAct": react.instructions,
}
"""Agents that need no chat template with tools, by what they tell the policy of its tools."""


def introduced(messages: Sequence[Message], told: str) -> list[Message]:
    """The task's messages with something told: in its system message, or else its first."""
    first, *others = messages
    content = f"{first.text}\n\n{told}" if first.role == "system" else f"{told}\n\n{first.text}"
    return [Message(role=first.role, content=content), *others]
