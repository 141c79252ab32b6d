"""Which responses have calls, by what SGLang's parsers answer."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rl_contracts.spec.agent.tools import ToolCallFormat
from rl_sampler.engine.client import Engine
from rl_sampler.engine.protocol import ParsedCalls
from rl_sampler.tools.formats import parse_calls
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
