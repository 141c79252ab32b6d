"""Options of an agent that its kind does not read: refused by name."""

from __future__ import annotations

from collections.abc import Iterator

from rl_contracts.errors import Refusal
from rl_contracts.spec.agents import Agent

NEEDED = {"Custom": ("entry_point",)}
"""By kind."""
ONLY_OF = {"entry_point": ("Custom",), "options": ("Custom",)}
"""Kinds that read an option; what is not here the API server's own rules tell."""


def of_agent(agent: Agent) -> Iterator[Refusal]:
    """What of ``spec.agent`` nobody would read, and what its kind cannot do without."""
    for name, kinds in ONLY_OF.items():
        if getattr(agent, name) is not None and agent.kind not in kinds:
            yield _refused(
                name, str(getattr(agent, name)), f"Kind {agent.kind} does not read it.",
                f"Remove it, or use kind {' or '.join(kinds)}.",
            )  # fmt: skip
    for name in NEEDED.get(agent.kind, ()):
        if getattr(agent, name) is None:
            yield _refused(name, "unset", f"Kind {agent.kind} needs it.", "Set it.")


def _refused(name: str, value: str, message: str, remedy: str) -> Refusal:
    alias = Agent.model_fields[name].alias
    return Refusal(
        field=f"spec.agent.{alias}", value=value[:200], reason="AgentMalformed", message=message,
        remedy=remedy,
    )  # fmt: skip
