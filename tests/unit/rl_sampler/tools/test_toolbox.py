from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any, cast

import pytest

from rl_contracts.spec.agent.agents import Browse
from rl_sampler.completions.failover import Failover
from rl_sampler.engine.counters import Counters
from rl_sampler.tools.answer import AnswerTool
from rl_sampler.tools.browse import Browser
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.tool import Tool, ToolResult, ToolsRefusedError
from rl_sampler.tools.toolbox import Toolbox, unique_names


def test_ambiguous_tool_names_are_refused() -> None:
    def tools(*names: str) -> list[Tool]:
        return [Tool(name=name) for name in names]

    assert [name for name, _, _ in unique_names({"a": tools("x"), "b": tools("y")})] == ["x", "y"]
    with pytest.raises(ToolsRefusedError, match="'a_x'"):
        unique_names({"a": tools("x", "a_x"), "b": tools("x")})
    with pytest.raises(ToolsRefusedError, match="offer no tools"):
        unique_names({"a": []})


def toolbox_of(final: dict[str, str | None]) -> Toolbox:
    sources = {"Answer": AnswerTool()}
    return Toolbox([], secrets=Path(), longest=99, counters=Counters(), own=sources, final=final)


async def test_built_in_answer_ends_the_episode_once_it_has_an_answer() -> None:
    tools = await toolbox_of({}).open()
    assert tools.final == {"answer": "answer"}
    outcomes = [
        (await tools.call(WantedCall(tool="answer", arguments=arguments))).outcome
        for arguments in ("{}", '{"answer": ""}', '{"answer": 0}', '{"answer": "42"}')
    ]
    assert outcomes == ["failed", "failed", "answered", "answered"]


async def test_final_tool_that_nobody_offers_is_refused() -> None:
    with pytest.raises(ToolsRefusedError, match=r"finalTools names submit.* use one of answer"):
        await toolbox_of({"submit": "value"}).open()


class Pages:
    """Two tools, of which one has an argument ``purpose`` of its own."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []

    async def tools(self) -> list[Tool]:
        own = {"type": "object", "properties": {"purpose": {"type": "string"}}}
        return [Tool(name="fetch"), Tool(name="search", parameters=own)]

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        self.asked.append(arguments)
        return ToolResult(text="a page")

    async def close(self) -> None:
        """Nothing to close."""


async def test_only_a_tool_with_an_argument_for_the_purpose_is_sent_it() -> None:
    endpoints = [{"url": "http://reader/v1", "model": "m"}]
    section = Browse.model_validate({"endpoints": endpoints, "purposeArgument": "purpose"})
    reader = Browser(section, Template(""), cast(Failover, None))
    pages = Pages()
    toolbox = Toolbox(
        [],
        secrets=Path(),
        longest=99,
        counters=Counters(),
        own={"Pages": pages},
        browser=reader,
    )
    tools = await toolbox.open()
    assert ["purpose" in tool.parameters["properties"] for tool in tools.listed] == [True, True]
    for name in ("fetch", "search"):
        arguments = '{"url": "a", "purpose": "its date"}'
        assert (await tools.call(WantedCall(tool=name, arguments=arguments))).result == "a page"
    assert pages.asked == [{"url": "a"}, {"url": "a", "purpose": "its date"}]
