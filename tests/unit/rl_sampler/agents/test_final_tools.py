from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.rollout import StopReason
from rl_sampler.agents.tool_loop import TOO_EARLY
from rl_sampler.tools.tool import Tool
from tests.unit.rl_sampler.agents.scripted import TOOL, call, play

SUBMIT = Tool(name="submit", parameters={"type": "object", "properties": {}})
FINAL = [{"name": "submit", "answerArgument": "value"}]
ADD = '{"a": 20, "b": 22}'


def submit(**arguments: Any) -> str:
    return call(tool="submit", **arguments)


def react(tool: str, text: str) -> str:
    return f"Thought: so\nAction: {tool}\nAction Input: {text}"


async def test_call_of_a_final_tool_ends_the_episode_with_its_argument_as_the_answer() -> None:
    played = await play(
        [call(a=20, b=22), f"That is it. {submit(value='42')}"],
        answers={ADD: "42", '{"value": "42"}': "thanks"},
        tools=(TOOL, SUBMIT),
        finalTools=FINAL,
    )
    assert played.reason is StopReason.STOP
    assert [turn.calls[0].tool for turn in played.member.turns] == ["calc", "submit"]
    assert played.member.submitted == "42"


async def test_final_tool_ends_a_react_episode() -> None:
    played = await play(
        [react("calc", ADD), react("submit", '{"value": "42"}')],
        answers={ADD: "42", '{"value": "42"}': "thanks"},
        tools=(TOOL, SUBMIT),
        kind="ReAct",
        finalTools=FINAL,
    )
    assert (played.reason, played.member.submitted) == (StopReason.STOP, "42")


@pytest.mark.parametrize("outcome", ["failed", "refused"])
async def test_final_tool_that_does_not_answer_ends_nothing(outcome: str) -> None:
    played = await play(
        [submit(value=""), submit(value="42")],
        answers={'{"value": ""}': (outcome, "say something"), '{"value": "42"}': "thanks"},
        tools=(TOOL, SUBMIT),
        finalTools=FINAL,
    )
    assert "say something" in played.policy.contexts[1]
    assert (played.reason, played.member.submitted) == (StopReason.STOP, "42")


async def test_final_call_counts_on_the_last_turn_where_other_calls_are_not_made() -> None:
    options: dict[str, Any] = {"tools": (TOOL, SUBMIT), "finalTools": FINAL, "maxTurns": 1}
    ended = await play([submit(value="42")], answers={'{"value": "42"}': "thanks"}, **options)
    assert (ended.reason, ended.member.submitted) == (StopReason.STOP, "42")
    cut = await play([call(a=20, b=22)], answers={ADD: "42"}, **options)
    assert (cut.reason, cut.member.turns[0].calls) == (StopReason.TURNS, [])


async def test_final_call_before_min_turns_is_not_made() -> None:
    played = await play(
        [submit(value="1"), submit(value="42")],
        answers={'{"value": "42"}': "thanks"},
        tools=(TOOL, SUBMIT),
        finalTools=FINAL,
        minTurns=2,
    )
    assert TOO_EARLY in played.policy.contexts[1]
    assert [len(turn.calls) for turn in played.member.turns] == [0, 1]
    assert played.member.submitted == "42"


@pytest.mark.parametrize(
    ("final", "arguments", "answer"),
    [
        ({"name": "submit"}, {"value": "42"}, None),
        ({"name": "submit", "answerArgument": "value"}, {"value": 42}, "42"),
        ({"name": "submit", "answerArgument": "value"}, {"value": [1, "é"]}, '[1, "é"]'),
        ({"name": "submit", "answerArgument": "value"}, {"other": "42"}, ""),
    ],
)
async def test_answer_is_the_named_argument(
    final: dict[str, str], arguments: dict[str, Any], answer: str | None
) -> None:
    played = await play([submit(**arguments)], tools=(TOOL, SUBMIT), finalTools=[final])
    assert (played.reason, played.member.submitted) == (StopReason.STOP, answer)
