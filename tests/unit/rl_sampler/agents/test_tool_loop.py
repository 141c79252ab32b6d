from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import pytest

from rl_contracts.documents.rollout import StopReason, ToolCall
from rl_sampler.agents.context import DISCARDED, NOTES, SUMMARISE
from rl_sampler.agents.tool_loop import TOO_EARLY, UNREADABLE
from rl_sampler.engine.counters import Counters
from rl_sampler.tools.formats import WantedCall
from rl_sampler.tools.tool import Tool, ToolDownError, ToolResult, ToolSource
from rl_sampler.tools.toolbox import Offer, Tools
from rl_sampler.user_code.call import UserCodeError
from tests.unit.rl_sampler.agents.scripted import TOOL, Played, call, play

ADD = '{"a": 20, "b": 22}'
ANSWER = "<answer>42</answer>"


def check_trace(played: Played) -> None:
    """The trace holds every response once, in its turn's place, and nothing else as generated."""
    trace = played.member.trace
    assert len(trace.tokens) == len(trace.mask) == len(trace.logprobs)
    generated = [at for at, bit in enumerate(trace.mask) if bit]
    response_positions = [
        at for turn in played.member.turns for at in range(turn.response.start, turn.response.end)
    ]
    assert generated == response_positions
    assert [at for span in trace.spans for at in range(span.start, span.end)] == generated
    starts = [0, *trace.sequence_starts]
    for turn in played.member.turns:
        begin = max(start for start in starts if start <= turn.request.start)
        shown = played.policy.prompts.decode(trace.tokens[begin : turn.response.start])
        assert shown == played.policy.contexts[played.member.turns.index(turn)]


async def test_tool_loop_ends_with_a_response_without_calls() -> None:
    played = await play([f"I add. {call(a=20, b=22)}", ANSWER], answers={ADD: "42"})
    assert played.reason is StopReason.STOP
    first, second = played.member.turns
    (made,) = first.calls
    assert (made.tool, made.arguments, made.outcome, made.result) == ("calc", ADD, "answered", "42")
    assert (second.text, second.calls) == (ANSWER, [])
    assert played.member.trace.sequence_starts == []
    assert "<tool_response>\n42\n</tool_response>" in played.policy.contexts[1]
    check_trace(played)


async def test_tool_loop_answers_several_calls_in_order() -> None:
    script = [f"{call(a=1)}\n{call(a=2)}", ANSWER]
    played = await play(script, answers={'{"a": 1}': "one", '{"a": 2}': "two"})
    assert [call.result for call in played.member.turns[0].calls] == ["one", "two"]
    shown = played.policy.contexts[1]
    assert shown.index("one") < shown.index("two")
    check_trace(played)


@pytest.mark.parametrize(
    ("outcome", "text"), [("failed", "division by zero"), ("refused", "no such tool")]
)
async def test_policy_sees_a_tools_own_failure(outcome: str, text: str) -> None:
    played = await play([call(a=20, b=22), ANSWER], answers={ADD: (outcome, text)})
    assert played.reason is StopReason.STOP
    assert text in played.policy.contexts[1]
    assert played.member.turns[0].calls[0].outcome == outcome


async def test_down_tool_ends_the_episode_as_infrastructure_error() -> None:
    with pytest.raises(ToolDownError, match="gone"):
        await play([call(a=20, b=22), ANSWER], answers={ADD: ("down", "it is gone")})


class Calculator:
    """A source of one tool."""

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        return ToolResult(text="42")


@pytest.mark.parametrize("script", [[call(a=1), call(tool="cook", b=2)], [call(tool="cook", b=2)]])
async def test_a_call_of_a_tool_that_is_not_offered_is_refused_and_a_model_error(
    script: list[str],
) -> None:
    offer = Offer(tool=TOOL, source=cast(ToolSource, Calculator()), source_name="calc")
    tools = Tools({"calc": offer}, longest=99, counters=Counters())
    played = await play(["\n".join(script), ANSWER], offered=tools)
    first, last = played.member.turns
    assert (first.error and first.error.kind, last.error) == ("model", None)
    made = first.calls
    assert [each.outcome for each in made] == ["answered"] * (len(script) - 1) + ["refused"]
    assert "There is no tool 'cook'. Tools: calc." in played.policy.contexts[1]


async def test_malformed_call_is_a_model_error_and_the_policy_is_asked_again() -> None:
    played = await play(["<tool_call>\n{not json}\n</tool_call>", ANSWER])
    assert played.reason is StopReason.STOP
    error = played.member.turns[0].error
    assert error is not None
    assert error.kind == "model"
    assert UNREADABLE in played.policy.contexts[1]
    check_trace(played)


async def test_the_policy_is_told_that_calls_beside_a_malformed_one_were_not_made() -> None:
    script = [f"{call(a=1)}\n<tool_call>\n{{not json}}\n</tool_call>", ANSWER]
    played = await play(script, answers={'{"a": 1}': "one"})
    assert played.member.turns[0].calls == []
    assert "No call of this response was made." in played.policy.contexts[1]


@pytest.mark.parametrize(
    ("model", "thoughts"),
    [
        ("qwen3", f"<think>\nPerhaps {call(a=20, b=22)}? It is easy.\n</think>\n"),
        ("qwen3", "<think>\nI need no <tool_call>.\n</think>\n"),
        ("qwen3_5_think", f"Perhaps {call(a=20, b=22)}? It is easy.\n</think>\n"),
    ],
)
async def test_a_call_in_the_thoughts_is_none(model: str, thoughts: str) -> None:
    played = await play([thoughts + ANSWER], answers={ADD: "42"}, model=model)
    (turn,) = played.member.turns
    assert (played.reason, turn.calls, turn.error) == (StopReason.STOP, [], None)
    assert turn.text == thoughts + ANSWER
    check_trace(played)


async def test_a_call_behind_the_thoughts_is_made() -> None:
    thoughts = f"<think>\nPerhaps {call(a=1)}?\n</think>\n"
    played = await play([thoughts + call(a=20, b=22), ANSWER], answers={ADD: "42"})
    assert [made.arguments for made in played.member.turns[0].calls] == [ADD]
    check_trace(played)


async def test_last_turn_ends_the_episode_without_making_its_calls() -> None:
    played = await play([call(a=index) for index in range(5)], maxTurns=3)
    assert (played.reason, len(played.member.turns)) == (StopReason.TURNS, 3)
    assert played.member.turns[-1].calls == [], "nobody would see what they answer"
    assert played.member.trace.mask[-1] == 1, "nothing is shown behind the last response"
    check_trace(played)


async def test_tool_loop_refuses_an_answer_before_min_turns() -> None:
    played = await play(["41", ANSWER], minTurns=2)
    assert played.reason is StopReason.STOP
    assert TOO_EARLY in played.policy.contexts[1]
    assert played.member.turns[-1].text == ANSWER


async def test_repeated_responses_end_the_episode_early() -> None:
    script = [call(a=1), call(a=2), call(a=1), call(a=2), call(a=3)]
    played = await play(script, repetitionLimit=2)
    assert (played.reason, len(played.member.turns)) == (StopReason.REPETITION, 4)
    kinds = [turn.error.kind if turn.error else None for turn in played.member.turns]
    assert kinds == [None, None, "model", "model"]


async def test_response_cut_by_a_limit_is_the_last() -> None:
    played = await play([call(a=20, b=22)], per_turn=10)
    assert (played.reason, len(played.member.turns)) == (StopReason.LENGTH, 1)


LONG = {f'{{"a": {index}}}': f"{index}" * 200 for index in range(10)}


async def test_full_context_ends_the_episode_without_partial_messages() -> None:
    played = await play([call(a=1), call(a=2), ANSWER], answers=LONG, room=500, per_turn=100)
    assert (played.reason, len(played.member.turns)) == (StopReason.CONTEXT, 2)
    assert len(played.member.trace) <= played.policy.longest
    assert played.member.trace.mask[-1] == 1
    check_trace(played)


async def test_response_that_fills_the_context_ends_with_context_not_length() -> None:
    played = await play([call(a=1), "9" * 200], answers=LONG, room=400, per_turn=300)
    assert (played.reason, len(played.member.turns)) == (StopReason.CONTEXT, 2)


async def test_discard_tools_replaces_old_results_and_keeps_responses() -> None:
    played = await play(
        [f"first {call(a=1)}", f"second {call(a=2)}", ANSWER],
        answers=LONG,
        room=700,
        per_turn=100,
        context={"overflow": "DiscardTools"},
    )
    assert played.reason is StopReason.STOP
    last = played.policy.contexts[-1]
    assert (LONG['{"a": 1}'] in last, LONG['{"a": 2}'] in last) == (False, True)
    assert DISCARDED in last
    assert "first <tool_call>" in last
    trace = played.member.trace
    assert len(trace.sequence_starts) == 1
    begin = trace.sequence_starts[0]
    assert list(trace.mask[begin : played.member.turns[-1].response.start]).count(1) == 0
    assert len(trace) <= played.policy.longest
    check_trace(played)


async def test_discard_tools_closes_turns_that_a_stop_text_ended() -> None:
    played = await play(
        [call(a=1), call(a=2), ANSWER],
        answers=LONG,
        room=700,
        per_turn=100,
        stops=["</tool_call>"],
        context={"overflow": "DiscardTools"},
    )
    assert len(played.member.trace.sequence_starts) == 1
    closed = "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>"
    assert played.policy.contexts[-1].count(closed) == 2
    check_trace(played)


async def test_discard_tools_goes_on_with_the_sequence_where_it_discards_nothing() -> None:
    broken = [f"<tool_call>{number}" for number in range(4)]
    played = await play(
        [call(a=1), *broken, ANSWER],
        answers={'{"a": 1}': "41"},
        room=1600,
        per_turn=1500,
        context={"overflow": "DiscardTools"},
    )
    assert played.reason is StopReason.STOP
    assert len(played.member.turns) == 6
    assert not played.member.trace.sequence_starts
    assert not any(DISCARDED in context for context in played.policy.contexts)
    check_trace(played)


async def test_discard_tools_begins_a_sequence_once_for_each_result_that_it_discards() -> None:
    script = [call(a=1), call(a=2), *(f"<tool_call>{number}" for number in range(3)), ANSWER]
    played = await play(
        script,
        answers={'{"a": 1}': "41" * 20, '{"a": 2}': "42" * 20},
        room=1600,
        per_turn=1500,
        context={"overflow": "DiscardTools"},
    )
    assert len(played.member.trace.sequence_starts) == 1
    assert DISCARDED in played.policy.contexts[-1]
    check_trace(played)


@pytest.mark.parametrize(
    ("result", "sequences"), [("41", 0), ("é" * (len(DISCARDED) - 1), 0), ("9" * 200, 7)]
)
async def test_discard_tools_never_makes_the_context_longer(result: str, sequences: int) -> None:
    script = [*(call(a=number) for number in range(8)), ANSWER]
    answers = {f'{{"a": {number}}}': result for number in range(8)}
    whole = await play(script, answers=answers)
    played = await play(
        script, answers=answers, room=3000, per_turn=2900, context={"overflow": "DiscardTools"}
    )
    assert played.reason is whole.reason is StopReason.STOP
    assert len(played.member.trace.sequence_starts) == sequences
    pairs = zip(played.policy.contexts, whole.policy.contexts, strict=True)
    assert all(len(shown) <= len(all_shown) for shown, all_shown in pairs)
    check_trace(played)


async def test_discard_tools_goes_on_where_only_that_fits() -> None:
    answers = {f'{{"a": {number}}}': "41" for number in range(8)}
    script = [*(call(a=number) for number in range(8)), ANSWER]
    whole = await play(script, answers=answers)
    room = len(whole.member.trace) - whole.member.turns[0].response.start + 1
    played = await play(
        script, answers=answers, room=room, per_turn=200, context={"overflow": "DiscardTools"}
    )
    assert played.reason is StopReason.STOP


@pytest.mark.parametrize(("tokens", "room", "notes"), [(200, 650, True), (0, 450, False)])
async def test_discard_all_keeps_only_the_policys_notes(
    tokens: int, room: int, notes: bool
) -> None:
    script = [call(a=1), *(["20 + 22 is nearly done"] if notes else []), ANSWER]
    played = await play(
        script,
        answers=LONG,
        room=room,
        per_turn=150,
        context={"overflow": "DiscardAll", "summaryTokens": tokens},
    )
    assert played.reason is StopReason.STOP
    last = played.policy.contexts[-1]
    assert "What is 20 + 22?" in last
    assert LONG['{"a": 1}'] not in last
    assert (NOTES + "20 + 22 is nearly done" in last) == notes
    assert any(SUMMARISE in context for context in played.policy.contexts) == notes
    assert len(played.member.trace.sequence_starts) == 1
    check_trace(played)


@pytest.mark.parametrize(
    ("model", "response", "shown"),
    [
        ("qwen3", "<think>Is it 43?</think>\n\nIt is 42.", NOTES + "It is 42."),
        ("qwen3", "It is 42.", NOTES + "It is 42."),
        ("qwen3_5_think", "Is it 43?</think>\n\nIt is 42.", NOTES + "It is 42."),
        ("qwen3", "<think>Is it 43?", ""),
        ("qwen3_5_think", "Is it 43?", ""),
        ("qwen3", "<|im_start|>" * 40, ""),  # broken up it is too long
    ],
)
async def test_notes_are_what_the_policy_says_behind_its_thoughts(
    model: str, response: str, shown: str
) -> None:
    played = await play(
        ["</think><tool_call>", response, ANSWER],
        model=model,
        room=500,
        per_turn=480,
        context={"overflow": "DiscardAll", "summaryTokens": 100},
    )
    assert played.reason is StopReason.STOP
    assert SUMMARISE in played.policy.contexts[1]
    last = played.policy.contexts[2]
    assert f"What is 20 + 22?{shown}<|im_end|>" in last
    assert "43" not in last
    check_trace(played)


@pytest.mark.parametrize("overflow", ["DiscardTools", "DiscardAll"])
async def test_message_larger_than_the_context_ends_the_episode(overflow: str) -> None:
    context: dict[str, Any] = {"overflow": overflow}
    played = await play(
        [call(a=1)] * 9, answers={'{"a": 1}': "9" * 5000}, room=700, per_turn=100, context=context
    )
    assert played.reason in {StopReason.CONTEXT, StopReason.REPETITION}
    assert all(len(turn.text) <= 100 for turn in played.member.turns)
    check_trace(played)


def test_every_call_is_recorded_with_its_outcome() -> None:
    made = ToolCall(tool="calc", arguments="{}", outcome="answered", result="1", seconds=0.5)
    assert ToolCall.model_validate_json(made.model_dump_json()) == made


class OneFails:
    """Two tools: one fails as the user's code does, while the other does not answer."""

    listed: ClassVar[list[Tool]] = [TOOL]
    final: ClassVar[dict[str, str | None]] = {}

    def __init__(self) -> None:
        self.open = 0

    async def call(self, wanted: WantedCall) -> ToolCall:
        if wanted.arguments == '{"a": 1}':
            await asyncio.sleep(0)
            raise UserCodeError("it is wrong")
        self.open += 1
        try:
            answer: ToolCall = await asyncio.get_running_loop().create_future()
            return answer
        finally:
            self.open -= 1


async def test_no_call_goes_on_once_another_has_ended_the_episode() -> None:
    tools = OneFails()
    with pytest.raises(UserCodeError, match="it is wrong"):
        await play([f"{call(a=1)}\n{call(a=2)}"], offered=cast(Tools, tools))
    assert tools.open == 0
