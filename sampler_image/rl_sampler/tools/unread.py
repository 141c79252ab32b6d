"""Whether a response has calls that the engine's parser left out. Pure.

Most parsers give the calls that they can read and say nothing of the others. What is found here
never stands in the arguments of a call that was read: texts in JSON hold no line end, and no
quotation mark without a backslash before it. Where text may only name a call, it is none: a call
that is not made although it was read costs more than one that is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator

from rl_sampler.engine.protocol import ParsedCalls

HasUnread = Callable[[str, ParsedCalls, Collection[str]], bool]
"""Takes what a response says, what the parser made of it, and the names of the tools that were
offered."""

JSON = re.compile(
    r'''\\.|"name"\s*:\s*"(?P<name>[^"]*)"|"(?:[^"\\\n]|\\.)*"'''
    r"|(?P<inner>[:,\[]\s*)?(?P<opens>\{)|(?P<closes>\})"
)
TAGGED = re.compile(r"""<tool_call>\s*?(?:\n|[\[{]\s*["'{])""")
QWEN_BLOCK = re.compile(r"<tool_call>\n(?P<json>.*?)(?:(?P<end>\n</tool_call>)|\Z)", re.DOTALL)
BLOCK = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)", re.DOTALL)
END = "</tool_call>"
XML_CALL = re.compile(
    r"(?<!`)(?:<tool_call>\s*<function=|<function=\w[^<>\n]*>\s*(?:<parameter=|</function>))"
    r"|</parameter>\s*</function>"
)
LINE_END = re.compile(r"\n|\\n")
"""For GLM's parser also as an escape."""
GLM_CALL = re.compile(
    r"(?<!`)<tool_call>[\w.-]+[ \t]*(?:\n|<arg_key>|</tool_call>)|</arg_value>\s*</tool_call>"
)
"""These see the end of a call, too: the parsers cut an argument that holds ``</tool_call>``."""
LIST = re.compile(r"\[\s*(?:[A-Za-z_]\w*\(|[A-Za-z_]\w*(?:\.\w+)+\((?=\s*[A-Za-z_]\w*\s*=[^=]))")
"""Dotted names only with an argument by name: an answer may hold ``[re.search(p, s)]``."""
PYTHON = re.compile(
    r"""\\.|\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}"""
    r"""|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
    r"|(?:\b(?P<name>[A-Za-z_]\w*))?(?P<opens>[\[({])|(?P<closes>[\])}])",
    re.DOTALL,
)


def nothing(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For formats with a single call in a response."""
    return False


def nameless(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For Hermes, whose parser reads all or nothing, but takes JSON without a name for a call."""
    return not all(call.name for call in parsed.calls)


def in_tags(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For Qwen, whose parser reads JSON that stands on lines between those of the tags."""
    rest = QWEN_BLOCK.sub(lambda it: "" if it["end"] and _is_json(it["json"]) else it[0], said)
    return nameless(said, parsed, offered) or bool(TAGGED.search(rest))


def in_xml(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For QwenCoder, whose parser reads all of a block with an end, or all where no block has one.

    Arguments are plain text and may name tags; so may what is said beside the calls.
    """
    rest = _outside(said, lambda block: block.endswith(END) and "<function=" in block)
    return rest != said and bool(XML_CALL.search(rest))


def in_glm(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For GLM, whose parser needs the end of a block, and a line end behind the name."""
    rest = _outside(said, lambda block: block.endswith(END) and LINE_END.search(block))
    return bool(GLM_CALL.search(rest))


def in_rest(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For ``[TOOL_CALLS]``, behind which the parser leaves as text what it cannot read."""
    left = "[TOOL_CALLS]" in (parsed.normal_text or "")
    return left or nameless(said, parsed, offered)


def in_json(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For JSON that nothing marks: by the objects that have the name of an offered tool."""
    _, tag, behind = said.partition("<|python_tag|>")
    begun = sum(name in offered for name in _object_names(behind if tag else said))
    return begun > sum(call.name in offered for call in parsed.calls)


def in_lists(said: str, parsed: ParsedCalls, offered: Collection[str]) -> bool:
    """For lists of calls in Python's form: by those lists that name an offered tool."""
    lists = [names for names in _lists(said) if set(names) & set(offered)]
    return sum(map(len, lists)) > len(parsed.calls)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _outside(said: str, is_read: Callable[[str], object]) -> str:
    """What stands outside of the blocks that the parser reads."""
    return BLOCK.sub(lambda block: "" if is_read(block[0]) else block[0], said)


def _object_names(text: str) -> list[str]:
    """The name of each object in JSON, without those that stand in another one.

    An object that is cut ends where the next begins: only a separator stands before an inner one.
    """
    names, depth = list[str](), 0
    for token in JSON.finditer(text):
        if token["opens"]:
            depth = depth + 1 if token["inner"] else 1
            if depth == 1:
                names.append("")
        elif token["closes"]:
            depth = max(depth - 1, 0)
        elif token["name"] and depth == 1:
            names[-1] = token["name"]
    return names


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
