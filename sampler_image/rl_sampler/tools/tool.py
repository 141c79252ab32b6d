"""A tool as the policy sees it, what it answers, and how it fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rl_contracts.errors import RLError


class ToolDownError(RLError):
    """A tool does not work: an infrastructure error, never a reward."""

    def __init__(self, message: str, *, server: str = "") -> None:
        """Say what is wrong, and of which MCP server of the manifest; empty: of none."""
        super().__init__(message)
        self.server = server


class ToolError(RLError):
    """A tool's own failure, in words for the policy, which goes on."""


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


class ToolSource(Protocol):
    """Where tools come from: an MCP server, or the user's own functions."""

    async def tools(self) -> list[Tool]:
        """What is offered now; raises ToolDownError."""

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool; raises ToolDownError, and UserCodeError where it is user code."""

    async def close(self) -> None:
        """Leave."""
