"""Parses tool calls in a response, with the engine's parser for the model family."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rl_contracts.spec.agent.tools import ToolCallFormat
from rl_sampler.engine.client import Engine
from rl_sampler.engine.errors import EngineRefusedError
from rl_sampler.engine.protocol import ParsedCalls
from rl_sampler.tools import harmony, unread
from rl_sampler.tools.thoughts import behind_thoughts
from rl_sampler.tools.tool import Tool
from rl_sampler.tools.unread import HasUnread

SERVER_ERROR = 500
ARGUMENTS = re.compile(r'"(?:parameters|arguments)"\s*:')
"""What a call in JSON has beside a name."""
NAME = '"name"'


@dataclass(frozen=True, slots=True)
class Format:
    """A format of tool calls."""

    parser: str
    """The engine's name of the parser."""
    marks: tuple[str, ...]
    """Texts of calls alone: a response with one of them but no call has a malformed call."""
    call: str = ""
    """A pattern of the begin of a call without a mark; other text, such as an answer in JSON,
    matches it, too."""
    held: tuple[str, ...] = ()
    """Texts with which such a call may begin: a stream waits there for the response's end."""
    has_unread: HasUnread = unread.nothing
    """Whether a response has calls that the parser left out."""
    for_parser: Callable[[str], str] = str
    """What the parser is given for a response."""
    channels: bool = False
    """Responses are messages in channels, of which one alone is for the one who asked."""

    @property
    def begins(self) -> re.Pattern[str]:
        """Where a call may begin."""
        return re.compile("|".join(filter(None, [*map(re.escape, self.marks), self.call])))

    def surely_calls(self, text: str) -> bool:
        """Whether a text has a mark."""
        return any(mark in text for mark in self.marks)

    def first(self, text: str) -> int | None:
        """Where the calls of a text begin: at its first mark, else where they may."""
        marks = [at for mark in self.marks if (at := text.find(mark)) >= 0]
        if marks:
            return min(marks)
        begin = self.begins.search(text)
        return None if begin is None else begin.start()

    def visible(self, text: str) -> str:
        """What a response says to the one who asked."""
        return harmony.visible(text) if self.channels else text


FORMATS: dict[ToolCallFormat, Format] = {
    "Hermes": Format("hermes", ("<tool_call>",), has_unread=unread.nameless),
    "Qwen": Format("qwen25", ("<tool_call>",), has_unread=unread.in_tags),
    "QwenCoder": Format("qwen3_coder", ("<tool_call>", "<function="), has_unread=unread.in_xml),
    "Llama": Format(
        "llama3",
        ("<|python_tag|>",),
        call=r'\A\s*\{|\{"name"',
        held=("{",),
        has_unread=unread.in_json,
    ),
    "Mistral": Format("mistral", ("[TOOL_CALLS]",), has_unread=unread.in_rest),
    "GLM": Format("glm45", ("<tool_call>",), has_unread=unread.in_glm),
    "Pythonic": Format("pythonic", (), call=unread.LIST.pattern, has_unread=unread.in_lists),
    "Harmony": Format("gpt-oss", (harmony.TO_TOOL,), for_parser=harmony.for_parser, channels=True),
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
    """The tool calls of a response."""

    calls: list[WantedCall]
    """Also of tools that the policy was not offered."""
    malformed: bool = False
    """The response has a call that cannot be parsed, and so none of its calls is made."""
    text: str = ""
    """What is said before the calls, with the thoughts; all of the response without calls."""


async def parse_calls(
    text: str, *, tools: Sequence[Tool], form: ToolCallFormat, engine: Engine, opened: bool = False
) -> Parsed:
    """Parse the tool calls of a response that stand behind its thoughts.

    Where no mark says surely that it calls a tool, a response that calls none of those offered has
    no call: an answer may hold ``[sorted()]``, or be ``{"name": "Alice"}``. Such text is a
    malformed call where it names an offered tool as a call does, or has a name and arguments as a
    call in JSON.

    Args:
        text: decoded, with special tokens.
        tools: those that the policy was offered.
        form: the manifest's ``agent.toolCallFormat``.
        engine: has the parser.
        opened: the prompt ended with ``<think>``.

    Raises:
        EngineError: the engine does not answer.
    """
    expected = FORMATS[form]
    said = text
    if not expected.channels:
        said = behind_thoughts(text, begins=expected.begins, opened=opened)
    mark = expected.first(said) if expected.marks else None
    if expected.marks and mark is None:
        return Parsed(calls=[], text=text)
    try:
        parsed = await engine.parse_calls(
            expected.for_parser(said),
            tools=[tool.to_chat() for tool in tools],
            parser=expected.parser,
        )
    except EngineRefusedError as error:
        if error.status != SERVER_ERROR:
            raise
        # Some parsers fail on JSON that is not a call, such as a list of numbers.
        return Parsed(calls=[], malformed=_malformed(said, expected, tools), text=text)
    calls = [
        WantedCall(tool=call.name, arguments=call.parameters) for call in parsed.calls if call.name
    ]
    offered = any(call.tool == tool.name for call in calls for tool in tools)
    if not calls or not (offered or expected.surely_calls(said)):
        return Parsed(calls=[], malformed=_malformed(said, expected, tools), text=text)
    if expected.has_unread(said, parsed, [tool.name for tool in tools]):
        return Parsed(calls=[], malformed=True, text=text)
    thoughts = text.removesuffix(said)
    before = (parsed.normal_text or "") if mark is None else said[:mark]
    return Parsed(calls=calls, text=thoughts + before)


def _malformed(said: str, form: Format, tools: Sequence[Tool]) -> bool:
    """Whether a text without a usable call looks like one."""
    if form.surely_calls(said) or (form.marks and NAME in said and ARGUMENTS.search(said)):
        return True
    return form.has_unread(said, ParsedCalls(calls=[]), [tool.name for tool in tools])
