"""The forms of the three APIs, over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from rl_sampler.engine.errors import EngineUnavailableError
from rl_sampler.gateway.server import Gateway
from rl_sampler.gateway.session import Session
from rl_sampler.gateway.sessions import Sessions
from tests.unit.rl_sampler.agents.scripted import call
from tests.unit.rl_sampler.gateway.scripted_sessions import Line, ScriptedPolicy, a_session

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
QUESTION = [{"role": "user", "content": "a"}]
PARAMETERS = {"type": "object", "properties": {}}
FUNCTION = {"name": "calc", "parameters": PARAMETERS}
TOOLS: dict[str, list[dict[str, Any]]] = {
    CHAT: [{"type": "function", "function": FUNCTION}],
    RESPONSES: [{"type": "function", **FUNCTION}],
    MESSAGES: [{"name": "calc", "input_schema": PARAMETERS}],
}


class Client:
    """A program's client."""

    def __init__(self, http: ClientSession, session: Session, policy: ScriptedPolicy) -> None:
        self.http, self.session, self.policy = http, session, policy

    async def post(self, path: str, *, key: str | None = None, **fields: Any) -> tuple[int, Any]:
        named = {"input": QUESTION} if path == RESPONSES else {"messages": QUESTION}
        body = {"model": "m", **named, **fields}
        if path == MESSAGES:
            body = {"max_tokens": 512} | body
        headers = {"Authorization": f"Bearer {self.session.key if key is None else key}"}
        async with self.http.post(path, json=body, headers=headers) as answer:
            text = await answer.text()
            streamed = answer.content_type == "text/event-stream"
            return answer.status, text if streamed else json.loads(text)


@asynccontextmanager
async def gateway(script: list[Line], **options: Any) -> AsyncIterator[Client]:
    session, policy = a_session(script, **options)
    sessions = Sessions()
    sessions.open(session)
    async with (
        TestServer(Gateway(sessions).application()) as server,
        ClientSession(str(server.make_url("/"))) as http,
    ):
        yield Client(http, session, policy)


def events(text: str) -> list[dict[str, Any]]:
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize(
    ("status", "fields", "key"),
    [
        (401, {}, "sk-other"),
        (400, {"unheard_of": 1}, None),
        (400, {"tool_choice": "required"}, None),
        (400, {"model": None}, None),
        (400, {"stream": "yes"}, None),
        (400, {"temperature": 0.2, "input": [], "messages": []}, None),
    ],
)
async def test_refusal_has_the_form_of_its_api(
    path: str, status: int, fields: dict[str, Any], key: str | None
) -> None:
    async with gateway([]) as client:
        given, body = await client.post(path, key=key, **fields)
        assert given == status
        kind = "authentication_error" if status == 401 else "invalid_request_error"
        assert body["error"]["type"] == kind
        if path == MESSAGES:
            assert body["type"] == "error"
        else:
            assert {"message", "param", "code"} <= body["error"].keys()
        assert client.policy.contexts == []


async def test_unknown_path_and_oversized_or_malformed_body_are_refused_in_form() -> None:
    async with gateway([]) as client:
        for path in ("/v1/embeddings", "/v1/messages/batches"):
            async with client.http.post(path, json={}) as answer:
                assert answer.status == 404
                assert "error" in await answer.json()
        headers = {"x-api-key": client.session.key}
        async with client.http.post(MESSAGES, data=b"{", headers=headers) as answer:
            assert (answer.status, (await answer.json())["type"]) == (400, "error")


@pytest.mark.parametrize(
    ("text", "status"),
    [(rb"\ud83d", 400), (b"\xed\xa0\x80", 400), (b"\xff", 400), (rb"\uD83D\uDE00", 200)],
)
async def test_half_of_a_surrogate_pair_is_refused_in_form(text: bytes, status: int) -> None:
    async with gateway(["b"]) as client:
        body = b'{"model": "m", "messages": [{"role": "user", "content": "%s"}]}' % text
        headers = {"x-api-key": client.session.key}
        async with client.http.post(CHAT, data=body, headers=headers) as answer:
            assert answer.status == status
            assert ("error" in await answer.json()) == (status == 400)


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, f"{MESSAGES}/count_tokens"])
async def test_body_that_cannot_fit_is_refused_before_it_is_tokenized(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "place", None)
    monkeypatch.setattr(Session, "count", None)
    async with gateway([]) as client:
        body = b" " * (64 * client.policy.sampling.max_context_tokens + 1)
        headers = {"x-api-key": client.session.key}
        async with client.http.post(path, data=body, headers=headers) as answer:
            assert answer.status == 400
            assert "more than 524288 (maxContextTokens" in (await answer.json())["error"]["message"]


async def test_half_of_a_surrogate_pair_in_arguments_is_shown_as_it_is_written() -> None:
    async with gateway(["b"]) as client:
        function = {"name": "calc", "arguments": r'{"a": "\ud83d"}'}
        called = {"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}
        result = {"role": "tool", "tool_call_id": "1", "content": "2"}
        status, _ = await client.post(CHAT, messages=[*QUESTION, called, result])
        assert status == 200
        assert r"\ud83d" in client.policy.prompts.decode(client.policy.contexts[0])


async def test_body_that_is_too_deep_is_refused_in_form() -> None:
    async with gateway([]) as client:
        headers = {"x-api-key": client.session.key}
        async with client.http.post(CHAT, data=b"[" * 100_000, headers=headers) as answer:
            assert answer.status == 400
            assert "is not JSON" in (await answer.json())["error"]["message"]


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize(
    "content",
    [
        [{"type": "image_url", "image_url": {"url": "data:,"}}],
        [{"type": "input_image", "image_url": "data:,"}],
        [{"type": "image", "source": {}}],
        [{"type": "document", "source": {}}],
    ],
)
async def test_images_and_files_are_refused(path: str, content: list[dict[str, Any]]) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
    async with gateway([]) as client:
        given: dict[str, Any] = {"input" if path == RESPONSES else "messages": messages}
        status, body = await client.post(path, **given)
        assert status == 400
        assert "reads text only" in body["error"]["message"]


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
async def test_fields_that_change_the_distribution_are_ignored_and_named(path: str) -> None:
    async with gateway(["ok"]) as client:
        status, _ = await client.post(path, temperature=0.2, top_p=0.5)
        assert status == 200
        assert client.session.ignored == {"temperature", "top_p"}


async def test_chat_answer_with_text_calls_and_logprobs() -> None:
    async with gateway(["Sum. " + call(x=1)]) as client:
        _, body = await client.post(CHAT, tools=TOOLS[CHAT], logprobs=True)
        (choice,) = body["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] == "Sum. "
        (made,) = choice["message"]["tool_calls"]
        assert made["function"] == {"name": "calc", "arguments": '{"x": 1}'}
        output = client.policy.outputs[0]
        shown = choice["logprobs"]["content"]
        assert [each["logprob"] for each in shown] == [
            -0.01 * (at + 1) for at in range(len(output))
        ]
        assert body["usage"]["completion_tokens"] == len(output)


async def test_chat_stream_has_text_calls_and_usage() -> None:
    async with gateway(["Sum. " + call(x=1)]) as client:
        _, text = await client.post(
            CHAT, tools=TOOLS[CHAT], stream=True, stream_options={"include_usage": True}
        )
        sent = events(text)
        deltas = [event["choices"][0]["delta"] for event in sent if event["choices"]]
        assert "".join(delta.get("content") or "" for delta in deltas) == "Sum. "
        (made,) = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
        assert (made["index"], made["function"]["name"]) == (0, "calc")
        assert sent[-2]["choices"][0]["finish_reason"] == "tool_calls"
        assert sent[-1]["usage"]["completion_tokens"] == len(client.policy.outputs[0])
        assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("script", "reason", "fields"),
    [
        ("Hello.", "end_turn", {}),
        ("Hello.", "max_tokens", {"max_tokens": 2}),
        ("Hello.", "stop_sequence", {"stop_sequences": ["llo"]}),
        ("Sum. " + call(x=1), "tool_use", {"tools": TOOLS[MESSAGES]}),
    ],
)
async def test_messages_answer_and_stream_agree(
    script: str, reason: str, fields: dict[str, Any]
) -> None:
    async with gateway([script, script]) as client:
        _, body = await client.post(MESSAGES, **fields)
        _, text = await client.post(MESSAGES, **fields, stream=True)
        sent = events(text)
        assert [event["type"] for event in sent][:1] == ["message_start"]
        assert sent[-1]["type"] == "message_stop"
        assert sent[-2]["delta"]["stop_reason"] == body["stop_reason"] == reason
        assert sent[-2]["usage"] == body["usage"]
        blocks: dict[int, dict[str, Any]] = {}
        for event in sent:
            if event["type"] == "content_block_start":
                blocks[event["index"]] = event["content_block"]
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                if delta["type"] == "text_delta":
                    blocks[event["index"]]["text"] += delta["text"]
                else:
                    blocks[event["index"]]["input"] = json.loads(delta["partial_json"])
        for block in [*blocks.values(), *body["content"]]:
            block.pop("id", None)
        assert list(blocks.values()) == body["content"]


async def test_tokens_of_messages_are_counted_and_nothing_is_sampled() -> None:
    async with gateway([]) as client:
        headers = {"x-api-key": client.session.key}
        counted = {"model": "m", "messages": QUESTION, "system": "Be kind."}
        async with client.http.post(
            f"{MESSAGES}/count_tokens", json=counted, headers=headers
        ) as answer:
            body = await answer.json()
        assert body["input_tokens"] > 10
        assert (client.policy.contexts, len(client.session.tree)) == ([], 0)


@pytest.mark.parametrize("script", ["Hello.", "Sum. " + call(x=1), call(x=1), ""])
async def test_responses_answer_and_stream_agree(script: str) -> None:
    async with gateway([script, script]) as client:
        fields: dict[str, Any] = {"tools": TOOLS[RESPONSES], "instructions": "Add."}
        _, body = await client.post(RESPONSES, **fields)
        _, text = await client.post(RESPONSES, **fields, stream=True)
        sent = events(text)
        assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
        whole = sent[-1]["response"]
        for item in (*whole["output"], *body["output"]):
            del item["id"]
            item.pop("call_id", None)
        assert sent[-1]["type"] == "response.completed"
        assert whole["output"] == body["output"]
        assert whole["usage"] == body["usage"]
        deltas = [event["delta"] for event in sent if event["type"].endswith("text.delta")]
        assert "".join(deltas) == script.split("<tool_call>")[0]


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
async def test_conversation_with_a_tool_continues_its_tokens(path: str) -> None:
    async with gateway([call(x=1), "2"]) as client:
        _, body = await client.post(path, tools=TOOLS[path])
        _, _ = await client.post(path, tools=TOOLS[path], **_next(path, body))
        before = client.policy.contexts[0] + client.policy.outputs[0]
        assert client.policy.contexts[1][: len(before)] == before
        assert len(client.session.tree.sequences()) == 1


@pytest.mark.parametrize("arguments", ["[1, 2]", '"20 + 22"', "5", "null"])
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
async def test_a_call_with_other_arguments_can_be_sent_back(path: str, arguments: str) -> None:
    script = f'<tool_call>\n{{"name": "calc", "arguments": {arguments}}}\n</tool_call>'
    async with gateway([script, "2"]) as client:
        _, body = await client.post(path, tools=TOOLS[path])
        status, _ = await client.post(path, tools=TOOLS[path], **_next(path, body))
        assert status == 200
        assert len(client.session.tree.sequences()) == 1


@pytest.mark.parametrize("arguments", ['{"x": NaN}', '{"x": 1e999}', "[-Infinity]"])
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_with_arguments_that_are_not_json_is_text(
    path: str, arguments: str, stream: bool
) -> None:
    script = f'<tool_call>{{"name": "calc", "arguments": {arguments}}}</tool_call>'
    async with gateway([script]) as client:
        status, body = await client.post(path, tools=TOOLS[path], stream=stream)
        assert status == 200
        text = body if stream else json.dumps(body)
        assert json.dumps(script)[1:-1] in text
        assert not any(f'"{name}"' in text for name in ("tool_use", "tool_calls", "function_call"))


def _next(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The request that brings a call's result, as the official SDKs send it."""
    if path == CHAT:
        message = body["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "2"}
        return {"messages": [*QUESTION, message, result]}
    if path == RESPONSES:
        output = {
            "type": "function_call_output",
            "call_id": body["output"][0]["call_id"],
            "output": "2",
        }
        return {"input": [*QUESTION, *body["output"], output]}
    result = {"type": "tool_result", "tool_use_id": body["content"][0]["id"], "content": "2"}
    return {
        "messages": [
            *QUESTION,
            {"role": "assistant", "content": body["content"]},
            {"role": "user", "content": [result]},
        ]
    }


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
async def test_outage_is_an_error_also_within_a_stream(path: str) -> None:
    async with gateway([EngineUnavailableError("engine is not up")]) as client:
        status, text = await client.post(path, stream=True)
        assert status == 200, "the stream has begun"
        assert "engine is not up" in text
        status, body = await client.post(path)
        assert status == 503
        assert "engine is not up" in body["error"]["message"]


async def test_program_posts_its_reward() -> None:
    async with gateway([]) as client:
        headers = {"Authorization": f"Bearer {client.session.key}"}
        body = {"reward": 0.5, "metrics": {"steps": 2}}
        async with client.http.post("/session/result", json=body, headers=headers) as answer:
            assert answer.status == 200
        assert client.session.reward == 0.5
        async with client.http.post("/session/result", json=body) as answer:
            assert answer.status == 401


async def test_models_are_listed() -> None:
    async with gateway([]) as client:
        headers = {"Authorization": f"Bearer {client.session.key}"}
        async with client.http.get("/v1/models", headers=headers) as answer:
            assert [card["id"] for card in (await answer.json())["data"]] == ["policy"]
