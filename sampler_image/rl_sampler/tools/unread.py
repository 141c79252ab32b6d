"""Whether a response has calls that the engine's parser left out. Pure.

Most parsers give the calls that they can read and say nothing of the others. What is counted here
never stands in the arguments of a call that was read: texts in JSON hold no line end, and no
quotation mark without a backslash before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from rl_sampler.engine.protocol import ParsedCalls

HasUnread = Callable[[str, ParsedCalls, Collection[str]], bool]
"""Takes what a response says from its first call on, what the parser made of it, and the names of
the tools that were offered."""

JSON_NAME = re.compile(r'"name"\s*:\s*"([^"]*)"')
TAGGED = re.compile(r'<tool_call>\s*?(?:\n|\{\s*")')
BLOCK = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)|<function=", re.DOTALL)
LIST = re.compile(r"\[[A-Za-z]\w*\(")
PYTHON = re.compile(
    r"""\\.|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
    r"|(?:\b(?P<name>[A-Za-z]\w*))?(?P<opens>[\[({])|(?P<closes>[\])}])",
    re.DOTALL,
)


def nothing(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For formats with a single call in a response."""
    return False


def in_tags(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For JSON in ``<tool_call>``."""
    return len(TAGGED.findall(said)) > _read(parsed)


def in_blocks(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For calls whose arguments are plain text, which may hold tags itself."""
    return len(BLOCK.findall(said)) > _read(parsed)


def in_rest(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For ``[TOOL_CALLS]``, behind which the parser leaves as text what it cannot read."""
    left = "[TOOL_CALLS]" in (parsed.normal_text or "")
    return left or _read(parsed) < len(parsed.calls)


def in_json(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For JSON that nothing marks: by the names of offered tools outside of arguments."""

    def named(text: str) -> int:
        return sum(name in offered for name in JSON_NAME.findall(text))

    in_arguments = sum(named(call.parameters) for call in parsed.calls)
    return named(said) - in_arguments > _read(parsed)


def in_lists(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For lists of calls in Python's form: by those lists that name an offered tool."""
    lists = [names for names in _lists(said) if set(names) & set(offered)]
    return sum(map(len, lists)) > _read(parsed)


def _read(parsed: ParsedCalls) -> int:
    return sum(bool(call.name) for call in parsed.calls)


def _lists(text: str) -> Iterator[list[str]]:
    """The names that are called in each list of calls, without those in arguments."""
    end = 0
    while begin := LIST.search(text, end):
        names, depth, end = list[str](), 0, len(text)
        for token in PYTHON.finditer(text, begin.start()):
            if token["name"] and token["opens"] == "(" and depth == 1:
                names.append(token["name"])
            depth += bool(token["opens"]) - bool(token["closes"])
            if token["closes"] and depth == 0:
                end = token.end()
                break
        yield names
