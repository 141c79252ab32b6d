"""Options of an agent that its kind does not read: refused by name."""

from __future__ import annotations

from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.agent.agents import Agent
from rl_contracts.spec.agent.sandbox import CODE
from rl_contracts.spec.resources import RLJobSpec

ONLY_OF = {
    "entry_point": ("Custom",),
    "options": ("Custom",),
    "user": ("Conversation",),
    "browse": ("ToolLoop", "ReAct", "Conversation", "Custom"),
    "min_turns": ("ToolLoop", "ReAct", "Code"),
    "tool_call_format": ("ToolLoop", "Conversation", "Custom"),
}
"""Kinds that read an option; of what is not here the API server's own rules tell."""

IN_TEXT = ("ReAct", "Code")
"""Kinds whose tools answer in the user's messages."""


def of_agent(spec: RLJobSpec) -> Iterator[Refusal]:
    """What of ``spec.agent`` nobody would read, and what its kind cannot do without."""
    agent = spec.agent
    for name, kinds in ONLY_OF.items():
        if getattr(agent, name) is not None and agent.kind not in kinds:
            yield _refused(
                name,
                str(getattr(agent, name)),
                f"Kind {agent.kind} does not read it.",
                f"Remove it, or use kind {' or '.join(kinds)}.",
            )
    if agent.kind == "Custom" and agent.entry_point is None:
        yield _refused("entry_point", "unset", "Kind Custom needs it.", "Set it.")
    if agent.kind in IN_TEXT and agent.context and agent.context.overflow == "DiscardTools":
        yield _refused(
            "context",
            "DiscardTools",
            f"{agent.kind} has no tool messages that could be discarded.",
            "Use overflow DiscardAll or Stop.",
        )
    yield from _of_programs(spec)
    yield from _of_scenarios(spec)


def _of_programs(spec: RLJobSpec) -> Iterator[Refusal]:
    for name in ("tools", "mcp_servers"):
        if spec.agent.kind == CODE and getattr(spec.agent, name):
            yield _refused(
                name, "set", "Kind Code has no tool but Python.", "Remove it, or use kind ToolLoop."
            )
    if spec.sandbox is not None and not spec.runs_programs:
        yield Refusal(
            field="spec.sandbox",
            value="set",
            reason="AgentMalformed",
            message="Nothing of this job runs programs.",
            remedy="Remove it, or use agent kind Code or scorer kind Code.",
        )


def _of_scenarios(spec: RLJobSpec) -> Iterator[Refusal]:
    talks = spec.agent.kind == "Conversation"
    for name, sources in spec.data.by_split.items():
        for index, source in enumerate(sources):
            at, column = f"spec.data.{name}[{index}].columns.scenario", source.columns.scenario
            if column is not None and not talks:
                yield Refusal(
                    field=at,
                    value=column,
                    reason="AgentMalformed",
                    message=f"Kind {spec.agent.kind} does not read it.",
                    remedy="Remove it, or use kind Conversation.",
                )
            if column is None and talks and spec.agent.user is None:
                yield Refusal(
                    field=at,
                    value="unset",
                    reason="AgentMalformed",
                    message="Nobody says what the user's further turns are.",
                    remedy="Name the column that holds them, or set spec.agent.user.",
                )


def _refused(name: str, value: str, message: str, remedy: str) -> Refusal:
    alias = Agent.model_fields[name].alias
    return Refusal(
        field=f"spec.agent.{alias}",
        value=value[:200],
        reason="AgentMalformed",
        message=message,
        remedy=remedy,
    )
