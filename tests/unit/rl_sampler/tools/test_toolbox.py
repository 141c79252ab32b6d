from __future__ import annotations

import pytest

from rl_sampler.tools.tool import Tool, ToolsRefusedError
from rl_sampler.tools.toolbox import unique_names


def test_ambiguous_tool_names_are_refused() -> None:
    def tools(*names: str) -> list[Tool]:
        return [Tool(name=name) for name in names]

    assert [name for name, _, _ in unique_names({"a": tools("x"), "b": tools("y")})] == ["x", "y"]
    with pytest.raises(ToolsRefusedError, match="'a_x'"):
        unique_names({"a": tools("x", "a_x"), "b": tools("x")})
    with pytest.raises(ToolsRefusedError, match="offer no tools"):
        unique_names({"a": []})
