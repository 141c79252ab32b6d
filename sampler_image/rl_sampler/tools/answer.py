"""The built-in tool ``answer``, with which the policy hands in its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_sampler.tools.tool import Tool, ToolResult, text_tool

ANSWER_ARGUMENT = "answer"
ANSWER = text_tool(
    "answer",
    description="Hands in the final answer. This ends the task.",
    argument=ANSWER_ARGUMENT,
    meaning="The answer alone.",
)


class AnswerTool:
    """A source with a single tool, whose call ends the episode."""

    async def tools(self) -> list[Tool]:
        """The tool."""
        return [ANSWER]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Take the answer; fails without one, so that the policy calls again."""
        if arguments.get(ANSWER_ARGUMENT) in (None, ""):
            return ToolResult(text=f"The argument `{ANSWER_ARGUMENT}` is missing.", failed=True)
        return ToolResult(text="The answer is handed in.")

    async def close(self) -> None:
        """Do nothing."""
