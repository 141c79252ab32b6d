"""A tool as the policy sees it, what it answers, and how it fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_contracts.errors import RLError


class ToolDownError(RLError):
    """A tool does not work: an infrastructure error, never a reward."""


class ToolsRefusedError(RLError):
    """The tools cannot be offered as the manifest names them; the user must change something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    """JSON schema of its arguments."""

    def to_chat(self) -> dict[str, Any]:
        """What chat templates and the engine's parsers take."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool that works answered."""

    text: str
    failed: bool = False
    """By the tool's own word: the policy is told, and goes on."""
