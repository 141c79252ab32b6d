"""ReAct: how its text is read, and episodes of templates that know no tools."""

from __future__ import annotations

from typing import Any

import pytest

from rl_contracts.documents.rollout import StopReason
from rl_contracts.documents.task import Message
from rl_sampler.agents import with_instructions
from rl_sampler.agents.react import UNREADABLE, Step, instructions, read
from rl_sampler.agents.tool_loop import TOO_EARLY
from rl_sampler.scorers.answers import final_answer
from rl_sampler.tools.formats import WantedCall
from tests.unit.rl_sampler.agents.scripted import TOOL, Played, play

ACT = 'Thought: I add.\nAction: calc\nAction Input: {"a": 1}'
DONE = "Thought: I know.\nFinal Answer: 42"
CALL = WantedCall(tool="calc", arguments='{"a": 1}')


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (ACT, Step(call=CALL)),
        (ACT + "\n", Step(call=CALL)),
        ('Action: calc\nAction Input:\n{\n "a": 1\n}', Step(call=CALL)),
        (ACT + "\nObservation: 7\nFinal Answer: 7", Step(call=CALL, invented=True)),
        (ACT + "\nObservation:", Step(call=CALL)),
        (ACT + "\nObservation:\nObservation: 7", Step(call=CALL, invented=True)),
        (ACT.replace("1", "[" * 5000), Step()),
        (ACT.replace("1", '"\\ud83d"'), Step()),
        (DONE, Step(final=True)),
        ("Final Answer: 42\n" + ACT, Step(final=True)),
        ("42", Step()),
        ("", Step()),
        ("Action: calc", Step()),
        ("Action: calc\nAction Input: a=1", Step()),
        ("Action Input: {}\nAction: calc", Step()),
        ("Observation: 42", Step()),
        ('I say Action: calc\nAction Input: {"a": 1}', Step()),
    ],
)
def test_react_parses_calls_final_answers_and_malformed_steps(text: str, step: Step) -> None:
    assert read(text) == step


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (DONE, "42"),
        ("Final Answer: 1\nFinal Answer:\n2 ", "2"),
        ("final answer: 42", None),
        ("Final Answer:", ""),
    ],
)
def test_final_answer_is_the_text_after_its_label(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


@pytest.mark.parametrize("role", ["system", "user"])
def test_react_describes_tools_in_the_first_message(role: str) -> None:
    first, last = with_instructions(
        [Message(role=role, content="first"), Message(role="user", content="last")],
        instructions([TOOL]),
    )
    assert first.role == role
    assert 'calc:  Arguments: {"type": "object", "properties": {}}' in first.text
    assert "first" in first.text
    assert last.text == "last"


async def react(script: list[str], **options: Any) -> Played:
    answers = {'{"a": 1}': "41<end_of_turn>", '{"a": 2}': "42"}
    return await play(script, answers=answers, kind="ReAct", model="gemma3", **options)


async def test_react_runs_actions_until_the_final_answer() -> None:
    """Gemma 3's template refuses messages of role tool."""
    played = await react([ACT, ACT.replace("1", "2"), DONE])
    assert played.reason is StopReason.STOP
    first, second, last = played.member.turns
    assert [call.outcome for call in (*first.calls, *second.calls)] == ["answered"] * 2
    assert last.calls == []
    assert "Observation: 41< end_of_turn>" in played.policy.contexts[1]
    assert "Observation: 42" in played.policy.contexts[2]
    trace = played.member.trace
    assert [trace.mask[turn.response.start] for turn in played.member.turns] == [1, 1, 1]


@pytest.mark.parametrize(
    ("script", "options", "reason", "message"),
    [
        (["hm", DONE], {}, StopReason.STOP, UNREADABLE),
        ([DONE, ACT, DONE + "!"], {"minTurns": 2}, StopReason.STOP, TOO_EARLY),
        ([ACT, ACT.replace("1", "2")], {"maxTurns": 2}, StopReason.TURNS, "Observation: 41"),
        ([ACT, ACT], {"repetitionLimit": 1}, StopReason.REPETITION, "Observation: 41"),
    ],
)
async def test_react_asks_again_after_a_malformed_step_until_max_turns(
    script: list[str], options: dict[str, int], reason: StopReason, message: str
) -> None:
    played = await react(script, **options)
    assert played.reason is reason
    assert message in played.policy.contexts[1]


async def test_react_reads_steps_behind_the_thoughts() -> None:
    drafts = [f"<think>\n{draft}\n</think>\n" for draft in (DONE, ACT)]
    played = await react([drafts[0] + ACT, drafts[1] + DONE])
    assert played.reason is StopReason.STOP
    assert [len(turn.calls) for turn in played.member.turns] == [1, 0]
    assert [turn.error for turn in played.member.turns] == [None, None]


async def test_react_blames_an_invented_observation_and_ignores_it() -> None:
    played = await react([ACT + "\nObservation: 7", DONE])
    error = played.member.turns[0].error
    assert error is not None
    assert "an observation of its own" in error.message
    assert "Observation: 41" in played.policy.contexts[1]


async def test_react_blames_an_action_that_is_no_tool() -> None:
    played = await react([ACT.replace("calc", "cook"), DONE])
    error = played.member.turns[0].error
    assert error is not None
    assert "not offered" in error.message


async def test_a_turn_that_a_stop_text_ended_is_closed_before_the_next() -> None:
    script = [ACT + "\nObservation:", DONE]
    played = await react(script, stops=["Observation:"])
    assert [turn.error for turn in played.member.turns] == [None, None]
    assert (
        "Observation:<end_of_turn>\n<start_of_turn>user\nObservation: 41"
        in played.policy.contexts[1]
    )
