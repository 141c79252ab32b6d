"""Tool calls in a response, read by the engine's own parsers: it knows each model family's form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rl_contracts.spec.agent.tools import ToolCallFormat
from rl_sampler.engine.client import Engine
from rl_sampler.engine.errors import EngineRefusedError
from rl_sampler.tools.tool import Tool

SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class Format:
    """A form of tool calls."""

    parser: str
    """The engine's name for it."""
    marks: tuple[str, ...]
    """Text that only occurs where a call is meant: without a call it is a malformed one."""


FORMATS: dict[ToolCallFormat, Format] = {
    "Hermes": Format("hermes", ("<tool_call>",)),
    "Qwen": Format("qwen25", ("<tool_call>",)),
    "QwenCoder": Format("qwen3_coder", ("<tool_call>", "<function=")),
    "Llama": Format("llama3", ("<|python_tag|>", '{"name"')),
    "Mistral": Format("mistral", ("[TOOL_CALLS]",)),
    "GLM": Format("glm45", ("<tool_call>",)),
    "Pythonic": Format("pythonic", ()),
}
"""By the manifest's ``agent.toolCallFormat``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedCall:
    """A call as the policy wrote it."""

    tool: str
    arguments: str
    """JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What is in a response."""

    calls: list[WantedCall]
    malformed: bool = False
    """A call was begun that nobody can read."""


async def parse_calls(
    text: str, *, tools: Sequence[Tool], form: ToolCallFormat, engine: Engine
) -> Parsed:
    """Read the tool calls of a response.

    Args:
        text: decoded, special tokens included.
        tools: that the policy was offered.
        form: the manifest's.
        engine: whose parser is asked.

    Raises:
        EngineError: the engine does not answer.
    """
    wanted = FORMATS[form]
    marked = any(mark in text for mark in wanted.marks)
    if wanted.marks and not marked:
        return Parsed(calls=[])
    try:
        found = await engine.parse_calls(
            text, tools=[tool.to_chat() for tool in tools], parser=wanted.parser
        )
    except EngineRefusedError as error:
        if error.status != SERVER_ERROR:
            raise
        # Some parsers fail on JSON that is no call, e.g. a list of numbers.
        return Parsed(calls=[], malformed=True)
    calls = [WantedCall(tool=call.name or "", arguments=call.parameters) for call in found.calls]
    return Parsed(calls=calls, malformed=marked and not calls)
