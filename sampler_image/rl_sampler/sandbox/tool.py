"""The sandbox as a tool, beside MCP servers and the user's own functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_sampler.sandbox.client import Sandbox, SandboxDownError
from rl_sampler.sandbox.programs import told
from rl_sampler.tools.tool import Tool, ToolDownError, ToolResult

PYTHON = "python"


class PythonTool:
    """One tool: run a program."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def tools(self) -> list[Tool]:
        """The tool."""
        schema = {
            "type": "object",
            "properties": {"code": {"type": "string"}},
            "required": ["code"],
        }
        return [Tool(name=PYTHON, description="Runs a Python program.", parameters=schema)]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a program; raises ToolDownError where the sandbox is away."""
        try:
            outcome = await self._sandbox.run(str(arguments["code"]))
        except SandboxDownError as error:
            raise ToolDownError(str(error)) from error
        return ToolResult(text=told(outcome), failed=outcome.ending != "ended")

    async def close(self) -> None:
        """Nothing is open."""
