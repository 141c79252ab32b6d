"""The tokens of conversations that go on, branch and repeat."""

from __future__ import annotations

import asyncio
import itertools
import json
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_contracts.documents.rollout import StopReason
from rl_contracts.documents.routing import assembled
from rl_sampler.agents.prompt import Prompts
from rl_sampler.agents.trace import Trace
from rl_sampler.gateway import openai_chat
from rl_sampler.gateway.asked import Reply
from rl_sampler.gateway.session import Session
from tests.examples import examples
from tests.unit.rl_sampler.agents.chat_models import QUOTE, quoting_prompts, real_prompts
from tests.unit.rl_sampler.agents.scripted import call
from tests.unit.rl_sampler.gateway.scripted_sessions import (
    ScriptedPolicy,
    a_session,
    expert_of,
)

TOOLS = [{"type": "function", "function": {"name": "calc", "parameters": {"type": "object"}}}]
PROMPTS = real_prompts("qwen3_instruct_2507")

Messages = list[dict[str, Any]]


async def ask(session: Session, messages: Messages, **fields: Any) -> Reply:
    body = {"model": "m", "messages": messages, **fields}
    return await session.answer(session.place(openai_chat.parse(body)))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answered(reply: Reply, choice: int = 0) -> dict[str, Any]:
    """The message as OpenAI's SDK sends it back."""
    message = openai_chat._message(reply.choices[choice])
    return {name: value for name, value in message.items() if value is not None}


def written(session: Session) -> tuple[Trace, list[list[int]]]:
    """The trace, and the tokens of each of its sequences."""
    trace = Trace()
    session.tree.write(trace)
    borders = [0, *trace.sequence_starts, len(trace.tokens)]
    spans = itertools.pairwise(borders)
    return trace, [trace.tokens[start:end] for start, end in spans]


async def test_request_that_extends_another_continues_its_tokens() -> None:
    session, policy = a_session(["One.", "Two."])
    first = [user("a")]
    reply = await ask(session, first)
    await ask(session, [*first, answered(reply), user("b")])
    assert policy.contexts[1][: len(policy.contexts[0])] == policy.contexts[0]
    before = policy.contexts[0] + policy.outputs[0]
    assert policy.contexts[1][: len(before)] == before
    trace, sequences = written(session)
    assert sequences == [policy.contexts[1] + policy.outputs[1]]
    assert trace.mask.count(1) == len(policy.outputs[0]) + len(policy.outputs[1])


async def test_experts_of_all_tokens_that_were_run_are_kept() -> None:
    session, policy = a_session(["One.", "Two.", "Three.", "Four."], routed=True)
    first = [user("a")]
    reply = await ask(session, first)
    second = [*first, answered(reply), user("b")]
    await ask(session, [*second, answered(await ask(session, second)), user("c")])
    await ask(session, [*first, answered(reply), user("d")])
    assert policy.known[1] == len(policy.contexts[0]) + len(policy.outputs[0]) - 1
    trace, sequences = written(session)
    assert len(sequences) == 2
    routing = assembled(trace.routing, tokens=len(trace.tokens))
    assert routing is not None
    chosen = list(struct.unpack(f"<{len(trace.tokens)}h", routing.canonical))
    wanted = [expert_of(token) for token in trace.tokens]
    for end in (len(sequences[0]), len(trace.tokens)):
        wanted[end - 1] = -1
    assert chosen == wanted


async def test_sampled_tokens_are_kept_where_a_tokenizer_would_choose_others() -> None:
    prompts = merging_prompts()
    session, policy = a_session([], prompts=prompts)
    policy.script = ["ab"]
    plain = prompts.tokens("a") + prompts.tokens("b")
    assert prompts.tokens("ab") != plain
    policy._response = lambda *_: _of(prompts, plain)  # type: ignore[method-assign]
    first = [user("ab")]
    reply = await ask(session, first)
    policy.script = ["ab"]
    await ask(session, [*first, answered(reply), user("ab")])
    assert policy.contexts[1][len(policy.contexts[0]) :][: len(plain)] == plain


async def test_changed_past_opens_a_branch_whose_prompt_is_no_data() -> None:
    session, policy = a_session(["One.", "Two."])
    reply = await ask(session, [user("a")])
    await ask(session, [user("changed"), answered(reply), user("b")])
    trace, sequences = written(session)
    assert len(sequences) == 2
    assert sequences[1] == policy.contexts[1] + policy.outputs[1]
    start = trace.sequence_starts[0]
    assert trace.mask[start:].count(1) == len(policy.outputs[1]), "the echoed response is context"


async def test_second_continuation_of_a_response_is_a_branch_with_the_same_prefix() -> None:
    session, policy = a_session(["One.", "Left.", "Right."])
    first = [user("a")]
    reply = await ask(session, first)
    both = [[*first, answered(reply), user(side)] for side in ("left", "right")]
    for messages in both:
        await ask(session, messages)
    trace, sequences = written(session)
    assert sequences == [
        context + output
        for context, output in zip(policy.contexts[1:], policy.outputs[1:], strict=True)
    ]
    assert trace.mask.count(1) == sum(map(len, policy.outputs)), "each response is data once"


@pytest.mark.parametrize("end", ["<|im_end|>", r"\u003c|im_end|>"])
async def test_arguments_of_a_call_cannot_end_a_turn(end: str) -> None:
    session, policy = a_session(["One."])
    function = {"name": "calc", "arguments": f'{{"x": "a{end}b"}}'}
    called = {"id": "1", "type": "function", "function": function}
    result = {"role": "tool", "tool_call_id": "1", "content": "2"}
    messages = [user("a"), {"role": "assistant", "content": "", "tool_calls": [called]}, result]
    await ask(session, messages, tools=TOOLS)
    shown = PROMPTS.decode(policy.contexts[0])
    assert '{"x": "a< |im_end|>b"}' in shown
    assert shown.count("<|im_end|>") == shown.count("<|im_start|>") - 1


async def test_arguments_of_a_call_hold_no_special_token_with_a_quotation_mark() -> None:
    prompts = quoting_prompts()
    session, policy = a_session(["One."], prompts=prompts)
    function = {"name": "calc", "arguments": json.dumps({"x": f"a{QUOTE}b"})}
    called = {"id": "1", "type": "function", "function": function}
    result = {"role": "tool", "tool_call_id": "1", "content": "2"}
    messages = [user("a"), {"role": "assistant", "content": "", "tool_calls": [called]}, result]
    await ask(session, messages, tools=TOOLS)
    assert prompts.tokens(QUOTE)[0] not in policy.contexts[0]
    assert 'a< |"|>b' in prompts.decode(policy.contexts[0])


async def test_each_of_several_choices_is_a_sequence() -> None:
    session, policy = a_session(["One.", "Two.", "Three."])
    reply = await ask(session, [user("a")], n=2)
    assert [choice.text for choice in reply.choices] == ["One.", "Two."]
    await ask(session, [user("a"), answered(reply, 1), user("b")])
    assert (
        policy.contexts[1][len(policy.contexts[0]) :][: len(policy.outputs[1])]
        == (policy.outputs[1])
    )
    _, sequences = written(session)
    assert len(sequences) == 2


async def test_equal_answers_to_equal_requests_are_continued_one_each() -> None:
    session, _ = a_session(["Same.", "Same.", "x", "y"])
    replies = [await ask(session, [user("a")]) for _ in range(2)]
    for reply, text in zip(replies, ("b", "c"), strict=True):
        await ask(session, [user("a"), answered(reply), user(text)])
    _, sequences = written(session)
    assert len(sequences) == 2, "neither response is shown as the other's context"


async def test_results_of_tools_continue_a_call() -> None:
    session, policy = a_session([call(x=1), "42"])
    reply = await ask(session, [user("a")], tools=TOOLS)
    (made,) = reply.choices[0].calls
    assert (made.name, json.loads(made.arguments)) == ("calc", {"x": 1})
    result = {"role": "tool", "tool_call_id": made.id, "content": "2<|im_end|>"}
    await ask(session, [user("a"), answered(reply), result], tools=TOOLS)
    before = policy.contexts[0] + policy.outputs[0]
    assert policy.contexts[1][: len(before)] == before
    between = policy.contexts[1][len(before) :]
    assert between.count(PROMPTS.stop_tokens[0]) == 1, "a result cannot end a turn"


@pytest.mark.parametrize("change", ["tools", "id"])
async def test_other_tools_branch_and_other_ids_of_calls_do_not(change: str) -> None:
    session, policy = a_session([call(x=1), "42"])
    reply = await ask(session, [user("a")], tools=TOOLS)
    echoed = json.loads(json.dumps(answered(reply)))
    tools = [*TOOLS, *_other_tool()] if change == "tools" else TOOLS
    echoed["tool_calls"][0]["id"] = "toolu_1"
    result = {"role": "tool", "tool_call_id": "toolu_1", "content": "2"}
    await ask(session, [user("a"), echoed, result], tools=tools)
    before = policy.contexts[0] + policy.outputs[0]
    assert (policy.contexts[1][: len(before)] == before) is (change == "id")


async def test_response_that_was_cut_is_closed_before_the_next_message() -> None:
    session, policy = a_session(["A long answer.", "x"])
    reply = await ask(session, [user("a")], max_tokens=5)
    assert (reply.choices[0].finish, reply.choices[0].text) == ("length", "A lon")
    await ask(session, [user("a"), answered(reply), user("b")])
    at = len(policy.contexts[0]) + 5
    assert policy.contexts[1][at] == PROMPTS.stop_tokens[0]
    trace, _ = written(session)
    assert trace.mask[at] == 0, "the policy did not end its turn"


async def test_stop_text_ends_a_response_and_is_not_shown_to_the_program() -> None:
    session, policy = a_session(["Observe: x", "y"])
    reply = await ask(session, [user("a")], stop=["Obs", "serve"])
    assert (reply.choices[0].text, reply.choices[0].stop) == ("", "Obs")
    await ask(session, [user("a"), answered(reply), user("b")])
    before = policy.contexts[0] + policy.outputs[0]
    assert policy.contexts[1][: len(before)] == before


async def test_turns_name_the_ranges_of_the_trace() -> None:
    session, _policy = a_session(["One.", "Two.", "Three."])
    reply = await ask(session, [user("a")])
    await ask(session, [user("x")])
    await ask(session, [user("a"), answered(reply), user("b")])
    trace = Trace()
    turns = session.tree.write(trace)
    assert [turn.text for turn in turns] == ["Two.", "One.", "Three."], "the last one comes last"
    for turn in turns:
        tokens = trace.tokens[turn.response.start : turn.response.end]
        assert PROMPTS.decode(tokens) == turn.text
        assert turn.stop_reason is StopReason.STOP
        assert all(trace.mask[turn.response.start : turn.response.end])
        assert not any(trace.mask[turn.request.start : turn.request.end])


MOVES = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from(["go on", "edit", "retry", "drop the first answer", "new"]),
        st.sampled_from(["a", "b", "ä€", ""]),
        st.sampled_from(["yes", "no", "ja ä", "<think>x</think>y"]),
        st.integers(1, 3),
        st.sampled_from([None, 1, 2]),
    ),
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(MOVES)
def test_any_conversation_keeps_its_tokens(moves: Sequence[tuple[Any, ...]]) -> None:
    asyncio.run(_converse(moves))


async def _converse(moves: Sequence[tuple[Any, ...]]) -> None:
    """Converse with random moves, then compare the trace with what the engine was sent."""
    session, policy = a_session([], prompts=PROMPTS)
    past: list[tuple[Messages, Reply, int]] = []
    asked: list[Messages] = []
    for pick, move, text, response, choices, limit in moves:
        messages = [user(text)]
        if past and move != "new":
            before, reply, choice = past[pick % len(past)]
            messages = [*before, answered(reply, choice), user(text)]
            if move == "edit":
                messages[0] = user(messages[0]["content"] + "!")
            elif move == "retry":
                messages = list(before)
            elif move == "drop the first answer":
                messages = [message for message in messages if message["role"] != "assistant"]
        policy.script = [f"{response}{number}" for number in range(choices)]
        fields = {"n": choices} | ({"max_tokens": limit} if limit else {})
        reply = await ask(session, messages, **fields)
        asked.append(messages)
        past += [(messages, reply, choice) for choice in range(choices)]
    trace, sequences = written(session)
    _check(session, policy, trace, sequences)


def _check(
    session: Session, policy: ScriptedPolicy, trace: Trace, sequences: list[list[int]]
) -> None:
    turns = session.tree.write(Trace())
    assert len(turns) == len(policy.outputs)
    assert session.tree.size == len(trace.tokens) == len(trace.mask) == len(trace.logprobs)
    assert trace.mask.count(1) == sum(map(len, policy.outputs)), "each response is data once"
    assert sum(span.end - span.start for span in trace.spans) == trace.mask.count(1)
    starts = [0, *trace.sequence_starts]
    sent = {tuple(context) for context in policy.contexts}
    for turn in turns:
        start = max(each for each in starts if each <= turn.response.start)
        context = tuple(trace.tokens[start : turn.response.start])
        assert context in sent, "what stands before a response is what it was sampled from"
        output = trace.tokens[turn.response.start : turn.response.end]
        assert output in policy.outputs
        logprobs = trace.logprobs[turn.response.start : turn.response.end]
        assert logprobs == [-0.01 * (index + 1) for index in range(len(output))]


def _other_tool() -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "other", "parameters": {}}}]


def merging_prompts() -> Prompts:
    """A template with a tokenizer that merges a and b."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {sign: index for index, sign in enumerate([*alphabet, "ab"])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(text, special=True) for text in ("<|im_end|>", "<|u|>")])
    template = (
        "{%- for message in messages -%}{{- '<|u|>' ~ message.role ~ ':' ~ message.content ~ "
        "'<|im_end|>' -}}{%- endfor -%}{{- '<|u|>assistant:' -}}"
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", chat_template=template
    )
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    return Prompts(tokenizer, vocabulary=len(tokenizer), stop_tokens=(end,))


def _of(prompts: Prompts, tokens: list[int]) -> Any:
    from tests.unit.rl_sampler.gateway.scripted_sessions import generation

    return generation([*tokens, prompts.stop_tokens[0]], matched=prompts.stop_tokens[0])
