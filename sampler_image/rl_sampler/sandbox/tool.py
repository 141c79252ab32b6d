"""The sandbox as a tool of the policy, and the programs in its responses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rl_sampler.sandbox.client import Sandbox, SandboxDownError
from rl_sampler.sandbox.wire import Ending, Outcome
from rl_sampler.tools.tool import Tool, ToolDownError, ToolResult, text_tool

OPENING = re.compile(r"```[ \t]*(?:python|py|Python)[ \t]*\n")
CLOSING = re.compile(r"```[ \t]*\n?")
"""Whole lines, so that a long response takes time in proportion to its length."""
ENDINGS: dict[Ending, str] = {
    "processor": "[ended: it used all of its processor time]",
    "wall": "[ended: it waited for too long]",
}
NO_OUTPUT = "[it printed nothing]"
PYTHON = "python"


def last_block(text: str) -> str | None:
    """The last complete ```` ```python ```` block of a text; None where there is none."""
    last: str | None = None
    block: list[str] | None = None
    for line in text.split("\n"):
        ended = f"{line}\n"
        if block is None:
            block = [] if OPENING.fullmatch(ended) else None
        elif CLOSING.fullmatch(ended):
            last, block = "".join(block), None
        else:
            block.append(ended)
    return last


def describe_outcome(outcome: Outcome) -> str:
    """Text for the policy: a program's output and errors, and why it was ended."""
    parts = [outcome.output, outcome.errors, ENDINGS.get(outcome.ending, "")]
    return "\n".join(part.rstrip("\n") for part in parts if part.strip()) or NO_OUTPUT


class PythonTool:
    """A source with a single tool, which runs a Python program."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def tools(self) -> list[Tool]:
        """The sandbox's tool."""
        return [text_tool(PYTHON, description="Runs a Python program.", argument="code")]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a program; raises ToolDownError where the sandbox is down."""
        code = arguments.get("code")
        if not isinstance(code, str):
            return ToolResult(text="The argument `code` must be a text.", failed=True)
        try:
            outcome = await self._sandbox.run(code)
        except SandboxDownError as error:
            raise ToolDownError(str(error)) from error
        return ToolResult(text=describe_outcome(outcome), failed=outcome.ending != "ended")

    async def close(self) -> None:
        """Do nothing: each program has its own connection."""
