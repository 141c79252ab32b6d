"""Code: which responses are run, and episodes in which they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rl_contracts.documents.rollout import StopReason
from rl_sampler.agents.tool_loop import TOO_EARLY
from rl_sampler.sandbox.tool import PYTHON
from rl_sampler.tools.tool import Tool
from tests.unit.rl_sampler.agents.scripted import Played, play


def block(program: str) -> str:
    return f"I compute.\n```python\n{program}\n```\n"


async def code(script: list[str], **options: Any) -> Played:
    answers = {json.dumps({"code": "print(20 + 22)\n"}): "42<end_of_turn>"}
    return await play(
        script,
        answers=answers,
        kind="Code",
        mcpServers=[],
        tools=[Tool(name=PYTHON)],
        model="gemma3",
        **options,
    )


async def test_code_agent_runs_programs_until_an_answer_has_none() -> None:
    """Gemma 3's template refuses messages of role tool."""
    played = await code([block("print(20 + 22)"), "It is 42."])
    assert played.reason is StopReason.STOP
    first, last = played.member.turns
    assert [call.outcome for call in first.calls] == ["answered"]
    assert last.calls == []
    assert "You can run Python." in played.policy.contexts[0]
    assert "Output:\n42< end_of_turn>" in played.policy.contexts[1]


@pytest.mark.parametrize(
    ("script", "options", "reason", "calls"),
    [
        (["```\nnot marked\n```"], {}, StopReason.STOP, 0),
        (["```python\nnever closed"], {}, StopReason.STOP, 0),
        ([f"<think>{block('print(1)')}</think>It is 42."], {}, StopReason.STOP, 0),
        ([block("print(20 + 22)")], {"maxTurns": 1}, StopReason.TURNS, 0),
        ([block("print(20 + 22)"), "42"], {"minTurns": 2}, StopReason.STOP, 1),
        ([block("print(20 + 22)")] * 2, {"repetitionLimit": 1}, StopReason.REPETITION, 1),
    ],
)
async def test_code_agent_runs_the_last_block_and_ends_as_declared(
    script: list[str], options: dict[str, int], reason: StopReason, calls: int
) -> None:
    played = await code(script, **options)
    assert played.reason is reason
    assert sum(len(turn.calls) for turn in played.member.turns) == calls


async def test_code_agent_refuses_an_answer_before_min_turns() -> None:
    played = await code(["42", "42!"], minTurns=2)
    assert played.reason is StopReason.STOP
    assert TOO_EARLY in played.policy.contexts[1]
