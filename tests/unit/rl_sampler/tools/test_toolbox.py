from __future__ import annotations

from pathlib import Path

import pytest

from rl_sampler.engine.counters import Counters
from rl_sampler.tools.answer import AnswerTool
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.tool import Tool, ToolsRefusedError
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
