"""Fields of messages that programs send: refused, or ignored and named."""

from __future__ import annotations

from typing import Any

import pytest

from rl_sampler.gateway.session import MOST_IGNORED
from tests.unit.rl_sampler.gateway.test_apis import CHAT, MESSAGES, QUESTION, RESPONSES, gateway


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (CHAT, {"function_call": {"name": "calc", "arguments": "{}"}}),
        (CHAT, {"prefix": True}),
        (CHAT, {"partial": True}),
        (CHAT, {"refusal": "I cannot."}),
        (CHAT, {"audio": {"id": "1"}}),
        (RESPONSES, {"function_call": {"name": "calc", "arguments": "{}"}}),
        (RESPONSES, {"prefix": True}),
        (RESPONSES, {"tool_calls": [{"id": "1"}]}),
        (MESSAGES, {"tool_calls": [{"id": "1"}]}),
    ],
)
async def test_fields_of_messages_that_change_what_is_shown_are_refused_by_name(
    path: str, field: dict[str, Any]
) -> None:
    messages = [*QUESTION, {"role": "assistant", "content": "b", **field}, *QUESTION]
    named = "input" if path == RESPONSES else "messages"
    sent: dict[str, Any] = {named: messages}
    async with gateway([]) as client:
        status, body = await client.post(path, **sent)
        assert status == 400
        assert f"{named}[1].{next(iter(field))} is not supported" in body["error"]["message"]


@pytest.mark.parametrize(
    ("path", "fields", "named"),
    [
        (
            CHAT,
            {"refusal": None, "audio": None, "function_call": None, "annotations": None},
            set(),
        ),
        (CHAT, {"prefix": False, "refusal": ""}, set()),
        (CHAT, {"reasoning_content": "Hm.", "x" * 99: 1}, {"reasoning_content", "x" * 64}),
        (RESPONSES, {"name": "bob", "id": "msg_1", "status": "completed"}, {"name"}),
        (MESSAGES, {"id": "msg_1", "stop_reason": "end_turn"}, {"id", "stop_reason"}),
    ],
)
async def test_other_fields_of_messages_are_ignored_and_named(
    path: str, fields: dict[str, Any], named: set[str]
) -> None:
    messages = [*QUESTION, {"role": "assistant", "content": "b", **fields}, *QUESTION]
    async with gateway(["ok"]) as client:
        sent: dict[str, Any] = {"input" if path == RESPONSES else "messages": messages}
        status, _ = await client.post(path, **sent)
        assert status == 200
        assert client.session.ignored == {f"messages.{name}" for name in named}


async def test_a_session_names_so_many_ignored_fields_and_no_more() -> None:
    async with gateway(["ok"] * 2) as client:
        for request in range(2):
            messages = [
                {"role": "user", "content": "a", f"field_{request}_{number}": 1}
                for number in range(MOST_IGNORED - 1)
            ]
            status, _ = await client.post(CHAT, messages=messages)
            assert status == 200
        assert len(client.session.ignored) == MOST_IGNORED
        assert "messages.field_0_0" in client.session.ignored


async def test_fields_of_calls_and_results_are_named_too() -> None:
    called = {"type": "tool_use", "id": "1", "name": "calc", "input": {}, "caller": "me"}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "2", "is_error": True}
    messages = [
        *QUESTION,
        {"role": "assistant", "content": [called]},
        {"role": "user", "content": [result]},
    ]
    async with gateway(["ok"]) as client:
        status, _ = await client.post(MESSAGES, messages=messages)
        assert status == 200
        assert client.session.ignored == {"messages.caller", "messages.is_error"}


async def test_a_refusal_is_text_that_the_policy_said() -> None:
    said = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    async with gateway(["ok"]) as client:
        status, _ = await client.post(CHAT, messages=[*QUESTION, said, *QUESTION])
        assert status == 200
        assert "I cannot." in client.policy.prompts.decode(client.policy.contexts[0])
