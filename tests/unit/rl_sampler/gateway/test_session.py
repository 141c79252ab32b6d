"""What a session gives out while a response grows, what it refuses, and what ends it."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from typing import Any, cast

import pytest

from rl_sampler.agents.chat import Chats
from rl_sampler.engine.errors import EngineUnavailableError
from rl_sampler.engine.protocol import ParsedCalls
from rl_sampler.gateway import openai_chat
from rl_sampler.gateway.asked import Asked, RefusedRequestError, Reply
from rl_sampler.gateway.server import ProgramLeftError
from rl_sampler.gateway.session import MOST_AT_ONCE, Session
from rl_sampler.gateway.sessions import Sessions
from rl_sampler.gateway.visible import GrowingText, settled
from tests.unit.rl_sampler.agents.chat_models import real_prompts
from tests.unit.rl_sampler.agents.scripted import ScriptedEngine, call
from tests.unit.rl_sampler.gateway.scripted_sessions import STEP, a_session
from tests.unit.rl_sampler.gateway.test_tree import TOOLS, user


class LlamaEngine:
    """Reads a call as SGLang's parser of Llama does."""

    async def parse_calls(
        self, text: str, *, tools: list[dict[str, Any]], parser: str
    ) -> ParsedCalls:
        assert text.startswith("{"), "the parser reads a call only at the first character"
        call = json.loads(text)
        parameters = json.dumps(call["parameters"])
        return ParsedCalls.model_validate({"calls": [{**call, "parameters": parameters}]})


async def streamed(session: Session, **fields: Any) -> tuple[Reply, list[str]]:
    """The reply, and the parts of the first choice's text in the order of their coming."""
    parts: list[str] = []

    async def emit(number: int, part: str) -> None:
        if number == 0:
            parts.append(part)

    body = {"model": "m", "messages": [user("a")], "stream": True, **fields}
    return await session.answer(session.place(openai_chat.parse(body)), emit), parts


@pytest.mark.parametrize(
    ("text", "marks", "length"),
    [
        ("plain", ("<tool_call>",), 5),
        ("wait <tool", ("<tool_call>",), 5),
        ("wait <tool_call>{", ("<tool_call>",), 5),
        ("a < b", ("<tool_call>",), 5),
        ("one STO", ("STOP", "one "), 0),
        ("", ("x",), 0),
    ],
)
def test_text_is_held_back_from_what_may_become_a_mark(
    text: str, marks: tuple[str, ...], length: int
) -> None:
    assert settled(text, marks) == length


def test_growing_text_gives_whole_characters() -> None:
    prompts = real_prompts("qwen3")
    growing = GrowingText(prompts.decode, ())
    parts = [growing.grow([token]) for token in prompts.tokens("aä€😀b")]
    assert [part for part in parts if part] == ["a", "ä", "€", "😀", "b"]


async def test_stream_comes_in_parts_that_make_the_text() -> None:
    session, _ = a_session(["Grüße an dich."])
    reply, parts = await streamed(session)
    assert "".join(parts) == reply.choices[0].text == "Grüße an dich."
    assert len(parts) > 10


@pytest.mark.parametrize("before", ["", "\n", "<think>a</think>\n"])
async def test_stream_shows_no_part_of_a_call_in_plain_json(before: str) -> None:
    line = before + '{"type": "function", "name": "calc", "parameters": {"x": 1}}'
    session, policy = a_session([line], model="llama3_1", form="Llama")
    policy.engine = cast(ScriptedEngine, LlamaEngine())
    reply, parts = await streamed(session, tools=TOOLS)
    assert "".join(parts) == reply.choices[0].text == before
    assert [call.name for call in reply.choices[0].calls] == ["calc"]


class QwenEngine:
    """Leaves out calls that it cannot read, as SGLang's parser of Qwen does."""

    async def parse_calls(
        self, text: str, *, tools: list[dict[str, Any]], parser: str
    ) -> ParsedCalls:
        assert parser == "qwen25"
        return ParsedCalls.model_validate({"calls": [{"name": "calc", "parameters": "{}"}]})


@pytest.mark.parametrize("stream", [False, True])
async def test_response_with_a_call_that_cannot_be_read_is_text(stream: bool) -> None:
    line = "I add. " + call(x=1) + call(x=2).replace("}", "", 1)
    session, policy = a_session([line], form="Qwen")
    policy.engine = cast(ScriptedEngine, QwenEngine())
    reply, parts = await streamed(session, tools=TOOLS, stream=stream)
    (choice,) = reply.choices
    assert "".join(parts) == choice.text == line
    assert (choice.calls, choice.finish) == ((), "stop")


async def test_stream_of_an_answer_in_json_comes_at_its_end() -> None:
    session, _ = a_session(['So: {"a": 1}'], model="llama3_1", form="Llama")
    reply, parts = await streamed(session, tools=TOOLS)
    assert "".join(parts) == reply.choices[0].text == 'So: {"a": 1}'
    assert parts[-1] == '{"a": 1}'


async def test_stream_shows_no_part_of_a_call() -> None:
    session, _ = a_session(["I add. " + call(x=1)])
    reply, parts = await streamed(session, tools=TOOLS)
    assert "".join(parts) == reply.choices[0].text == "I add. "
    assert reply.choices[0].finish == "tool_calls"


async def test_of_a_response_in_channels_the_last_is_shown_and_all_of_it_stays() -> None:
    thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    script = [f"{thought}<|channel|>final<|message|>Hello.", f"{thought}<|channel|>final"]
    session, policy = a_session(script, model="gptoss", form="Harmony")
    reply, parts = await streamed(session)
    assert parts == [reply.choices[0].text] == ["Hello."]
    past = [user("a"), {"role": "assistant", "content": "Hello."}, user("b")]
    reply, _ = await streamed(session, messages=past)
    assert reply.choices[0].text == ""
    before = [*policy.contexts[0], *policy.outputs[0]]
    assert policy.contexts[1][: len(before)] == before
    added = policy.prompts.decode(policy.contexts[1][len(before) :])
    assert added == "<|start|>user<|message|>b<|end|><|start|>assistant"


async def test_only_calls_behind_the_thoughts_are_calls_and_the_thoughts_are_shown() -> None:
    thoughts = f"<think>Perhaps {call(x=1)}?</think>"
    session, _ = a_session([thoughts + "It is 42.", thoughts + "I add. " + call(x=2)])
    for text, arguments in (("It is 42.", []), ("I add. ", ['{"x": 2}'])):
        reply, parts = await streamed(session, tools=TOOLS)
        (choice,) = reply.choices
        assert "".join(parts) == choice.text == thoughts + text
        assert [made.arguments for made in choice.calls] == arguments


async def test_a_response_that_the_prompt_opened_with_thoughts_has_calls_behind_their_end() -> None:
    session, _ = a_session([call(x=1), f"{call(x=1)}</think>{call(x=2)}"], model="qwen3_5_think")
    for arguments in ([], ['{"x": 2}']):
        reply, _ = await streamed(session, tools=TOOLS)
        assert [made.arguments for made in reply.choices[0].calls] == arguments


async def test_a_call_of_a_tool_that_the_request_does_not_offer_is_sent_as_it_is() -> None:
    session, _ = a_session([call(x=1) + call(tool="cook", x=2)])
    reply, _ = await streamed(session, tools=TOOLS)
    assert [made.name for made in reply.choices[0].calls] == ["calc", "cook"]


async def test_malformed_call_is_text() -> None:
    session, _ = a_session(["<tool_call>{oops"])
    reply, parts = await streamed(session, tools=TOOLS)
    assert "".join(parts) == reply.choices[0].text == "<tool_call>{oops"
    assert reply.choices[0].calls == ()


async def test_calls_are_text_where_the_request_allows_none() -> None:
    session, _ = a_session([call(x=1)])
    reply, _ = await streamed(session, tools=TOOLS, tool_choice="none")
    assert reply.choices[0].text == call(x=1)


async def test_without_parallel_calls_only_the_first_is_answered() -> None:
    session, _ = a_session([call(x=1) + call(x=2)])
    reply, _ = await streamed(session, tools=TOOLS, parallel_tool_calls=False)
    assert len(reply.choices[0].calls) == 1


async def test_stream_waits_for_the_end_where_an_update_may_repeat_it() -> None:
    session, _ = a_session(["Hello."])
    session.streams = False
    _, parts = await streamed(session)
    assert parts == ["Hello."]


async def test_conversation_is_that_of_the_last_response_although_its_program_left() -> None:
    session, _ = a_session(["1", "2"])
    session.streams = False
    await streamed(session)

    async def left(number: int, part: str) -> None:
        raise ProgramLeftError

    last = an_asked(messages=[user("b")], stream=True)
    with pytest.raises(ProgramLeftError):
        await session.answer(session.place(last), left)
    (*_, (*_, node)) = session.tree.sequences()
    assert (node.text, session.conversation) == ("2", last.messages)


async def test_of_several_choices_none_is_data_where_the_program_left_before_all_were_read() -> (
    None
):
    class SlowEngine(ScriptedEngine):
        """Does not come to the calls with 2."""

        async def parse_calls(self, text: str, **options: Any) -> ParsedCalls:
            if "2" in text:
                asked.set()
                await asyncio.Event().wait()
            return await super().parse_calls(text, **options)

    asked = asyncio.Event()
    session, policy = a_session([call(x=1), call(x=2), call(x=1), call(x=3)], engine=SlowEngine())
    request = asyncio.create_task(streamed(session, tools=TOOLS, n=2))
    await asked.wait()
    assert policy.claim.sampling_step == STEP, "while they are read"
    request.cancel()
    await asyncio.wait([request])
    assert len(session.tree) == 0
    assert policy.claim.sampling_step is None, "dropped tokens make no group older"
    await streamed(session, tools=TOOLS, n=2)
    assert len(session.tree) == 2
    assert policy.claim.sampling_step == STEP


async def test_outage_ends_the_session() -> None:
    session, _ = a_session([EngineUnavailableError("engine is not up"), "never said"])
    for _ in range(2):
        with pytest.raises(RefusedRequestError, match="engine is not up") as refused:
            await streamed(session)
        assert refused.value.status == 503
    assert session.failed.is_set()
    assert isinstance(session.failure, EngineUnavailableError)


async def test_request_without_room_is_refused_by_name() -> None:
    session, policy = a_session([], longest=4)
    with pytest.raises(RefusedRequestError) as refused:
        await streamed(session)
    assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")
    assert policy.contexts == []
    assert session.failure is None


async def test_session_has_a_bound_of_responses() -> None:
    session, _ = a_session(["1", "2"], most_responses=2)
    await streamed(session, n=2)
    with pytest.raises(RefusedRequestError, match=r"agent\.program\.maxResponses is 2"):
        await streamed(session)


async def test_template_that_shows_no_tools_refuses_them() -> None:
    session, _ = a_session([], model="gemma3")
    with pytest.raises(RefusedRequestError) as refused:
        await streamed(session, tools=TOOLS)
    assert (refused.value.status, refused.value.parameter) == (400, "tools")


def an_asked(**fields: Any) -> Asked:
    return openai_chat.parse({"model": "m", "messages": [user("a")], **fields})


def test_too_many_requests_at_once_are_refused() -> None:
    session, _ = a_session([])
    with ExitStack() as stack:
        for _ in range(MOST_AT_ONCE):
            stack.enter_context(session.admitted(an_asked()))
        with pytest.raises(RefusedRequestError) as refused:
            stack.enter_context(session.admitted(an_asked()))
    assert refused.value.status == 429
    with session.admitted(an_asked()) as placed:
        assert placed.place.parent is None


def test_requests_that_are_being_answered_count_against_the_bounds() -> None:
    session, _ = a_session([], most_responses=3, longest=400_000)
    with session.admitted(an_asked(n=2)), pytest.raises(RefusedRequestError) as refused:
        session.place(an_asked(n=2))
    assert refused.value.code == "session_limit"
    long = [user("a" * 300_000)]
    with session.admitted(an_asked(messages=long, n=2)):
        session.place(an_asked(n=1))
        with pytest.raises(RefusedRequestError, match="more than 1000000"):
            session.place(an_asked(messages=[user("b" * 399_000)]))


def test_key_is_void_after_its_session() -> None:
    session, _ = a_session([])
    sessions = Sessions()
    sessions.open(session)
    assert sessions.of(session.key) is session
    sessions.close(session)
    for key in (session.key, "", "sk-other"):
        with pytest.raises(RefusedRequestError) as refused:
            sessions.of(key)
        assert refused.value.status == 401


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"reward": 1.5}, "reward"),
        ({"reward": True}, "reward"),
        ({"reward": float("nan")}, "reward"),
        ({"reward": 10**400}, "reward"),
        ({"metrics": {"a": 10**400}}, "metrics"),
        ({"metrics": {"a": float("inf")}}, "metrics"),
        *(({"metrics": {name: 1}}, "metrics") for name in ("", "a.b", "$a", "a\0", "\ud800")),
        ({"metrics": {"a" * 65: 1}}, "metrics"),
        ({"metrics": {"a": "b"}}, "metrics"),
        ({"metrics": {str(index): 1 for index in range(33)}}, "metrics"),
        ({"score": 1}, "score"),
    ],
)
def test_result_that_cannot_be_stored_is_refused(body: dict[str, Any], named: str) -> None:
    session, _ = a_session([])
    with pytest.raises(RefusedRequestError) as refused:
        session.report(body)
    assert refused.value.parameter == named
    assert (session.reward, session.metrics) == (None, {})


def test_later_results_replace_earlier_values() -> None:
    session, _ = a_session([])
    session.report({"reward": 0.25, "metrics": {"steps": 3}})
    session.report({"metrics": {"steps": 4, "tests/pass@1": 1}})
    assert (session.reward, session.metrics) == (0.25, {"steps": 4.0, "tests/pass@1": 1.0})


async def test_chats_keep_the_latest_tools_only() -> None:
    session, _ = a_session(["x"] * 20)
    assert isinstance(session.chats, Chats)
    for number in range(20):
        function = {"name": f"tool_{number}", "parameters": {}}
        await streamed(session, tools=[{"type": "function", "function": function}])
    assert len(session.chats._latest) == 16
