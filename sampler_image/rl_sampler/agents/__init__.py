"""Agents: each runs an episode from the group's first response to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rl_contracts.documents.rollout import StopReason
from rl_contracts.documents.task import Message
from rl_sampler.agents import code, react
from rl_sampler.agents.conversation import conversation
from rl_sampler.agents.member import Member
from rl_sampler.agents.tool_loop import tool_loop
from rl_sampler.agents.turns import single_turn
from rl_sampler.tools.tool import Tool

Agent = Callable[[Member], Awaitable[StopReason]]
"""Takes a member whose first response was sampled already; returns why the episode ended."""

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
"""Agents that use tools without a chat template for tools: what describes the tools as text."""


def with_instructions(messages: Sequence[Message], instructions: str) -> list[Message]:
    """Add text to a task's messages: behind its system message, or else before its first."""
    first, *others = messages
    if first.images:
        return [first.with_text(f"{instructions}\n\n", before=True), *others]
    parts = (first.text, instructions) if first.role == "system" else (instructions, first.text)
    return [Message(role=first.role, content="\n\n".join(parts)), *others]
