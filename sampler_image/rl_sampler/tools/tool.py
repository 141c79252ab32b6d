"""Tools of the policy, their results and their errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rl_contracts.errors import RLError


class ToolDownError(RLError):
    """A tool is down: an infrastructure error, never a reward."""

    def __init__(self, message: str, *, server: str = "", kind: str = "") -> None:
        """Make the error.

        Args:
            message: what is wrong.
            server: name of the MCP server that is down; empty where it is none.
            kind: of what is down, for the name of an outage; empty: what the toolbox's servers are.
        """
        super().__init__(message)
        self.server, self.kind = server, kind


class ToolError(RLError):
    """A tool failed; the policy gets the message and goes on."""


class ToolsRefusedError(RLError):
    """The manifest's tools cannot be offered; the user must change the manifest or a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as the policy sees it."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    """JSON schema of the arguments."""

    def to_chat(self) -> dict[str, Any]:
        """The form that chat templates and the engine's parsers take."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


def text_tool(name: str, *, description: str, argument: str, meaning: str = "") -> Tool:
    """A tool with a single argument, a text that must be given.

    Args:
        name: of the tool.
        description: of the tool.
        argument: its name.
        meaning: of the argument; empty: its name says it.
    """
    schema = {"type": "string"} | ({"description": meaning} if meaning else {})
    parameters = {"type": "object", "properties": {argument: schema}, "required": [argument]}
    return Tool(name=name, description=description, parameters=parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool that is not down."""

    text: str
    images: tuple[str, ...] = ()
    """Files of images in base64, as the tool sent them."""
    failed: bool = False
    """The tool itself reports a failure; the policy gets the text and goes on."""


class ToolSource(Protocol):
    """A source of tools: an MCP server, the user's functions, or the sandbox."""

    async def tools(self) -> list[Tool]:
        """List the tools that are offered now; raises ToolDownError."""

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool; raises ToolDownError, and UserCodeError where it is user code."""

    async def close(self) -> None:
        """Close the connection, if any."""
