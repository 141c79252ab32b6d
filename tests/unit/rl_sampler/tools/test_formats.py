"""Which responses have calls, by what SGLang's parsers answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from rl_contracts.spec.agent.tools import ToolCallFormat
from rl_sampler.engine.client import Engine
from rl_sampler.engine.protocol import ParsedCalls
from rl_sampler.tools.formats import FORMATS, parse_calls
from tests.unit.rl_sampler.agents.scripted import TOOL


class Parser:
    """Finds calls of some tools, as SGLang does, which forwards those that are not offered."""

    def __init__(self, *names: str) -> None:
        self.names = names

    async def parse_calls(
        self, text: str, *, tools: list[dict[str, Any]], parser: str
    ) -> ParsedCalls:
        if parser == "llama3" and not text.startswith("{") and "<|python_tag|>" not in text:
            return ParsedCalls(normal_text=text, calls=[])
        calls = [{"name": name, "parameters": "{}"} for name in self.names if name in text]
        return ParsedCalls.model_validate({"normal_text": "", "calls": calls})


@pytest.mark.parametrize(
    ("form", "text", "found", "calls", "malformed"),
    [
        ("Pythonic", "[calc()]", ["calc"], ["calc"], False),
        ("Pythonic", "[calc(), cook()]", ["calc", "cook"], ["calc", "cook"], False),
        ("Pythonic", '[calc(text="about <think>")]', ["calc"], ["calc"], False),
        ("Pythonic", "<think>[calc()]</think>[calc()]", ["calc"], ["calc"], False),
        ("Pythonic", "Sort it with [sorted()].", ["sorted"], [], False),
        ("Pythonic", "rows = [dict(a=1), dict(a=2)]", ["dict", "dict"], [], False),
        ("Pythonic", "[calc(a=1+1)]", [], [], True),
        ("Pythonic", "I add: [cook(a=1), calc(a=", [], [], True),
        ("Pythonic", "[\n  calc(a=1)\n]", [], [], True),
        ("Pythonic", "[functions.calc(a=1)]", [], [], True),
        ("Pythonic", "[np.calc(x) for x in y]", [], [], False),
        ("Pythonic", "[a.calc(x == 1)]", [], [], False),
        ("Pythonic", '{"name": "Alice", "arguments": []}', [], [], False),
        ("Pythonic", "I used calc(1), not [cook(a=calc(1))].", [], [], False),
        ("Pythonic", "[1, calc]", [], [], False),
        ("Llama", '{"name": "calc", "parameters": {}}', ["calc"], ["calc"], False),
        ("Llama", '{"name": "Alice", "age": 30}', ["Alice"], [], False),
        ("Llama", '{"name": "Alice", "age": 30}', [], [], False),
        ("Llama", '{"name": "calculus"}', [], [], False),
        ("Llama", '{"name": "Alice", "likes": "calc"}', [], [], False),
        ("Llama", 'I need no calc: {"name": "Alice"}', [], [], False),
        ("Llama", '{"name": "calc", "parameters": {', [], [], True),
        ("Llama", '{"name" : "calc", "params": {}}', [], [], True),
        ("Llama", '{"name": "calc"}', [], [], True),
        ("Llama", '{"name": "cook", "parameters": {}}', ["cook"], [], True),
        ("Llama", '{"name": "cook", "arguments" : {}}', ["cook"], [], True),
        (
            "Llama",
            '{"type": "function", "name": "calc", "parameters": {}}',
            ["calc"],
            ["calc"],
            False,
        ),
        ("Llama", '{ "name": "calc", "parameters": {}}', ["calc"], ["calc"], False),
        ("Llama", '\n{\n  "name": "calc",\n  "parameters": {}\n}', ["calc"], ["calc"], False),
        ("Llama", '<think>a</think>\n{ "name": "calc"}', ["calc"], ["calc"], False),
        ("Llama", '{ "name": "calc", "text": "<think>"}', ["calc"], ["calc"], False),
        ("Llama", '{ "name": "calc", "parameters": {', [], [], True),
        ("Llama", '{"type": "function", "name": "cook", "parameters": {}}', ["cook"], [], True),
        ("Llama", '{"rooms": [{"name": "calc"}]}', [], [], False),
        ("Llama", '{"title": "a", "arguments": ["b"]}', [], [], False),
        ("Llama", '{ "name": "Alice", "age": 30}', ["Alice"], [], False),
        ("Llama", "{\\frac{1}{2}} calc", [], [], False),
        ("Llama", '<|python_tag|>{"name"', [], [], True),
        ("Hermes", '<tool_call>{"name": "cook"', [], [], True),
        ("Llama", '<|python_tag|>{"name": "cook"}', ["cook"], ["cook"], False),
        ("Hermes", '<tool_call>{"name": "cook"}</tool_call>', ["cook"], ["cook"], False),
    ],
)
async def test_text_that_nothing_marks_as_a_call_is_none_of_a_tool_that_is_not_offered(
    form: ToolCallFormat, text: str, found: list[str], calls: list[str], malformed: bool
) -> None:
    engine = cast(Engine, Parser(*found))
    parsed = await parse_calls(text, tools=[TOOL], form=form, engine=engine)
    assert ([call.tool for call in parsed.calls], parsed.malformed) == (calls, malformed)
    assert calls or parsed.text == text


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ('<think>a</think>\n{ "name": "calc"}', "<think>a</think>\n"),
        ('\n{ "name": "calc"}', "\n"),
        ('I call. <|python_tag|>{"name": "calc"}', "I call. "),
        ('{"a": 1} <|python_tag|>{"name": "calc"}', '{"a": 1} '),
    ],
)
async def test_what_is_said_before_a_call_of_llama_is_text(text: str, before: str) -> None:
    engine = cast(Engine, Parser("calc"))
    parsed = await parse_calls(text, tools=[TOOL], form="Llama", engine=engine)
    assert parsed.text == before


@dataclass(frozen=True)
class Answer:
    """What SGLang's parser answers, with arguments as JSON."""

    calls: Sequence[tuple[str | None, str]]
    normal_text: str = ""

    async def parse_calls(
        self, text: str, *, tools: list[dict[str, Any]], parser: str
    ) -> ParsedCalls:
        calls = [{"name": name, "parameters": written} for name, written in self.calls]
        return ParsedCalls.model_validate({"normal_text": self.normal_text, "calls": calls})


READ = ("calc", '{"a": 1}')
TAGGED = '<tool_call>\n{"name": "calc", "arguments": {"a": 1}}\n</tool_call>'
XML = "<tool_call>\n<function=calc>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
TWO_IN_ONE = XML.replace("</tool_call>", XML.removeprefix("<tool_call>"))
GLM = "<tool_call>calc\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"
JSON = '{"name": "calc", "parameters": {"a": 1}}'
LIST_OF_TWO = f"<tool_call>\n[{JSON}, {JSON}]\n</tool_call>"
COOKS = '{"name": "cook", "parameters": {}}'


@pytest.mark.parametrize(
    ("form", "text", "answer"),
    [
        ("Hermes", TAGGED + TAGGED.replace('"name": "calc", ', ""), Answer([READ, (None, "{}")])),
        ("Qwen", TAGGED + TAGGED.replace("}}", "}"), Answer([READ])),
        ("Qwen", TAGGED.replace("}}", "}") + TAGGED, Answer([READ])),
        ("Qwen", TAGGED.replace("\n", "") + TAGGED, Answer([READ])),
        ("Qwen", TAGGED + "<tool_call>\n", Answer([READ])),
        ("Qwen", LIST_OF_TWO + TAGGED[:-15], Answer([READ, READ])),
        ("Qwen", f"{TAGGED}<tool_call>[{JSON}]</tool_call>", Answer([READ])),
        ("Qwen", f"{TAGGED}<tool_call>{{'name': 'calc'}}</tool_call>", Answer([READ])),
        ("QwenCoder", XML + XML[:-20], Answer([READ])),
        ("QwenCoder", XML.removeprefix("<tool_call>") + XML, Answer([READ])),
        ("QwenCoder", XML + XML.removeprefix("<tool_call>"), Answer([READ])),
        ("QwenCoder", TWO_IN_ONE + XML[:-20], Answer([READ, READ])),
        ("QwenCoder", f"{XML}<tool_call><function=ca", Answer([READ])),
        ("QwenCoder", XML.replace("1", "</tool_call> 1"), Answer([READ])),
        ("QwenCoder", XML.replace("1", "</tool_call> <tool_call>"), Answer([READ])),
        ("GLM", GLM.replace("1", "\n</tool_call> 1"), Answer([READ])),
        ("GLM", GLM + GLM[:-20], Answer([READ])),
        ("GLM", f"<tool_call>calc</tool_call>{GLM}", Answer([READ])),
        ("Llama", f"{JSON}; {JSON[:-1]}", Answer([READ], JSON[:-1])),
        ("Llama", f"{JSON[:-1]}; {JSON}", Answer([READ])),
        ("Llama", f"{JSON[:-1]}; {COOKS}; {JSON}", Answer([("cook", "{}"), READ])),
        ("Llama", f"<|python_tag|>{JSON}; {JSON[:-1]}", Answer([READ], JSON[:-1])),
        (
            "Mistral",
            '[TOOL_CALLS]calc[ARGS]{"a": 1}[TOOL_CALLS]calc[ARGS]{"a": ',
            Answer([READ], '[TOOL_CALLS]calc[ARGS]{"a":'),
        ),
        ("Mistral", f"[TOOL_CALLS] [{JSON}, {{}}]", Answer([READ, (None, "{}")])),
        ("Pythonic", "[calc(a=1), calc(a=x)]", Answer([READ])),
        ("Pythonic", "[cook(a=x), calc(a=1)]", Answer([READ])),
    ],
)
async def test_no_call_is_made_where_the_parser_left_one_out(
    form: ToolCallFormat, text: str, answer: Answer
) -> None:
    parsed = await parse_calls(text, tools=[TOOL], form=form, engine=cast(Engine, answer))
    assert (parsed.calls, parsed.malformed, parsed.text) == ([], True, text)


QUOTES = 'Do: "1) [calc(1)] 2) calc(2)" it\'s "done"), calc('
"""Has quotation marks, as texts in triple quotes may."""
TWICE = '{"name": "calc", "parameters": {"a": {"name": "calc", "name": "b"}}}'
BOTH = '{"name": "calc", "parameters": {"a": 1}, "arguments": {"name": "calc"}}'
IN_TEXT = json.dumps({"q": f"{TAGGED} {JSON} <tool_call> [calc(a=1), calc("})


@pytest.mark.parametrize(
    ("form", "text", "answer"),
    [
        (
            "Qwen",
            f'{TAGGED}<tool_call>\n{{"name": "calc", "arguments": {IN_TEXT}}}\n</tool_call>',
            Answer([READ, ("calc", IN_TEXT)]),
        ),
        ("Qwen", f"I use <tool_call> now. {TAGGED}", Answer([READ])),
        ("Qwen", LIST_OF_TWO, Answer([READ, READ])),
        ("Qwen", f"{TAGGED}\nI wrote <tool_call>{{...}}</tool_call>.", Answer([READ])),
        ("Qwen", "<tool_call>\n[]\n</tool_call>" + TAGGED, Answer([READ])),
        ("QwenCoder", XML.replace("1", "<tool_call> <function=x>"), Answer([READ])),
        ("QwenCoder", XML.removesuffix("</tool_call>"), Answer([READ])),
        ("QwenCoder", TWO_IN_ONE, Answer([READ, READ])),
        ("QwenCoder", f"It needs `<function=name>`; I mend it.\n{XML}", Answer([READ])),
        ("QwenCoder", f"As `<function=f></function>` says:\n{XML}", Answer([READ])),
        ("QwenCoder", f"`<tool_call>` and `</tool_call>` are the tags.\n{XML}", Answer([READ])),
        ("QwenCoder", f"{XML}\nThe <tool_call> above asks.", Answer([READ])),
        ("GLM", GLM.replace("1", "<tool_call>\n"), Answer([READ])),
        ("GLM", GLM.replace("\n", "\\n"), Answer([READ])),
        ("GLM", f"{GLM}\nSee <function=foo>.", Answer([READ])),
        ("GLM", f"`<tool_call>` and `</tool_call>` are the tags.\n{GLM}", Answer([READ])),
        ("GLM", f"{GLM}\nThe <tool_call> above asks.", Answer([READ])),
        (
            "Llama",
            f'{{"name": "calc", "parameters": {IN_TEXT}}}; {JSON}',
            Answer([("calc", IN_TEXT), READ]),
        ),
        (
            "Llama",
            '{"name": "calc", "parameters": {"a": {"name": "calc"}}}',
            Answer([("calc", '{"a": {"name": "calc"}}')]),
        ),
        ("Llama", TWICE, Answer([("calc", '{"a": {"name": "b"}}')])),
        ("Llama", '{"name": "cook", "name": "calc", "parameters": {}}', Answer([("calc", "{}")])),
        ("Llama", BOTH, Answer([("calc", '{"a": 1}')])),
        ("Llama", JSON + '\n{"user": {"name": "Bob"}}', Answer([READ, (None, "{}")])),
        ("Llama", f"As {JSON}: <|python_tag|>{JSON}", Answer([READ], f"As {JSON}: ")),
        (
            "Mistral",
            f'[TOOL_CALLS] [{JSON}, {{"name": "calc", "arguments": {{"q": "[TOOL_CALLS]"}}}}]',
            Answer([READ, ("calc", '{"q": "[TOOL_CALLS]"}')]),
        ),
        ("Pythonic", '[calc(q="[calc(a=(1))], calc("), calc(a=[(1)])]', Answer([READ, READ])),
        ("Pythonic", "[calc(q='it\\'s [calc('), calc()]", Answer([READ, READ])),
        ("Pythonic", f'[calc(q="""{QUOTES}""")]', Answer([READ])),
        ("Pythonic", f"[calc(q='''{QUOTES}''')]", Answer([READ])),
        ("Pythonic", '[calc(q="", b=""), calc()]', Answer([READ, READ])),
        ("Pythonic", "I sort [sorted(x), len(y)]. [calc(a=1)]", Answer([READ])),
    ],
)
async def test_what_looks_like_a_call_beside_those_that_were_read_is_none(
    form: ToolCallFormat, text: str, answer: Answer
) -> None:
    parsed = await parse_calls(text, tools=[TOOL], form=form, engine=cast(Engine, answer))
    assert not parsed.malformed
    assert len(parsed.calls) == sum(name is not None for name, _ in answer.calls)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "piece",
    [
        "[calc(",
        '"\\"',
        "'\\'",
        "a",
        "<tool_call>",
        "<tool_call>a",
        "<tool_call>\n",
        '"name": "calc"',
        '\\"',
        '{"a": ',
        "<function=",
        "<function=a",
        "[a(b",
        "[ a.b",
        "[a.b(c ",
        '"""\\"',
        "'''\\a",
    ],
)
async def test_long_responses_are_read_in_linear_time(form: ToolCallFormat, piece: str) -> None:
    text = "{[calc(" + piece * 50_000
    engine = cast(Engine, Answer([READ]))
    await parse_calls(text, tools=[TOOL], form=form, engine=engine)
