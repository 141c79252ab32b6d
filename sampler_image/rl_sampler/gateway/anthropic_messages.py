"""Anthropic's messages: parses requests and writes answers, whole or as a stream.

Fields are used, ignored by name, or refused, as in ``openai_chat``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rl_sampler.gateway.asked import Asked, Call, Choice, Message, RefusedRequestError, Reply
from rl_sampler.gateway.body import (
    MOST_TOOLS,
    Body,
    check_turns,
    result_of,
    stop_texts,
    text_of,
    tool_of,
)
from rl_sampler.tools.tool import Tool

MOST_TOKENS = 1 << 20
IGNORED = frozenset(
    {"inference_geo", "metadata", "service_tier", "temperature", "thinking", "top_k", "top_p"}
)
REFUSED = frozenset({"function_call", "tool_calls"})
"""Fields of messages in the form of another API, without which the policy's calls would be lost."""
TEXT = ("text",)
DROPPED = ("thinking", "redacted_thinking")
"""Blocks that this policy never writes; programs may bring them from another model."""
CHOICE_REFUSED = "must be auto or none: a forced call would have other log-probabilities"
ERROR_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
FINISH = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def parse(values: object) -> Asked:
    """Parse a request; raises RefusedRequestError."""
    body = Body(values)
    most = body.count("max_tokens", None, most=MOST_TOKENS)
    if most is None:
        body.refuse("max_tokens", "is missing")
    asked = _parsed(body, most)
    body.end()
    return asked


def parse_count(values: object) -> Asked:
    """Parse a request for the number of tokens; raises RefusedRequestError."""
    body = Body(values)
    asked = _parsed(body, None)
    body.end()
    return asked


def _parsed(body: Body, most: int | None) -> Asked:
    system = text_of(body.any("system"), kinds=TEXT, at="system")
    messages = [Message(role="system", text=system)] if system else []
    ignored: set[str] = set()
    messages += _messages(body.required("messages", list), ignored)
    check_turns(messages, parameter="messages")
    allowed, parallel = _tool_choice(body)
    return Asked(
        messages=tuple(messages),
        tools=tuple(_tools(body.take("tools", list, []))),
        calls_allowed=allowed,
        parallel=parallel,
        most_tokens=most,
        stops=stop_texts(body, "stop_sequences"),
        stream=body.take("stream", bool, False),
        model=body.required("model", str),
        ignored=(*body.ignore(IGNORED), *sorted(ignored)),
    )


def _tool_choice(body: Body) -> tuple[bool, bool]:
    choice = Body(body.take("tool_choice", dict, {"type": "auto"}), at="tool_choice")
    kind = choice.required("type", str)
    if kind not in ("auto", "none"):
        choice.refuse("type", CHOICE_REFUSED)
    return kind == "auto", not choice.take("disable_parallel_tool_use", bool, False)


def _tools(listed: list[Any]) -> Iterator[Tool]:
    if len(listed) > MOST_TOOLS:
        raise RefusedRequestError(f"more than {MOST_TOOLS} tools", parameter="tools")
    for index, values in enumerate(listed):
        tool = Body(values, at=f"tools[{index}]")
        tool.only("type", ["custom"], "must be custom: Anthropic's own tools are not here")
        yield tool_of(
            tool.any("name"),
            tool.any("description"),
            tool.any("input_schema"),
            at=f"tools[{index}]",
        )


def _messages(listed: list[Any], ignored: set[str]) -> Iterator[Message]:
    """The conversation; ``ignored`` gets the names of fields that have no effect."""
    names: dict[str, str] = {}
    for index, values in enumerate(listed):
        at = f"messages[{index}]"
        message = Body(values, at=at)
        role, content = message.required("role", str), message.any("content")
        ignored |= message.rest(REFUSED)
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list):
            message.refuse("content", "must be a string or a list of blocks")
        if role == "assistant":
            assistant_message = _of_policy(blocks, ignored, at=f"{at}.content")
            names |= {call.id: call.name for call in assistant_message.calls}
            yield assistant_message
        elif role == "user":
            yield from _of_user(blocks, names, ignored, at=f"{at}.content")
        else:
            message.refuse("role", f"is {role!r}: use user or assistant")


def _of_policy(blocks: list[Any], ignored: set[str], *, at: str) -> Message:
    calls, texts = [], []
    for index, values in enumerate(blocks):
        block = Body(values, at=f"{at}[{index}]")
        kind = block.required("type", str)
        if kind == "tool_use":
            # Any JSON, as the policy may have written it; SDKs send back what they were given.
            arguments = json.dumps(block.any("input", missing={}))
            call_id, name = block.required("id", str), block.required("name", str)
            calls.append(Call(id=call_id, name=name, arguments=arguments))
            ignored |= block.rest(REFUSED)
        elif kind not in DROPPED:
            texts.append(text_of([values], kinds=TEXT, at=at))
    return Message(role="assistant", text="".join(texts), calls=tuple(calls))


def _of_user(
    blocks: list[Any], names: Mapping[str, str], ignored: set[str], *, at: str
) -> Iterator[Message]:
    """Results of tools are messages of their own; the rest is one message behind them."""
    rest = []
    for index, values in enumerate(blocks):
        block = Body(values, at=f"{at}[{index}]")
        if block.required("type", str) != "tool_result":
            rest.append(values)
            continue
        text = text_of(block.any("content"), kinds=TEXT, at=f"{at}[{index}].content")
        yield result_of(block.any("tool_use_id"), names, text, at=f"{at}[{index}]")
        ignored |= block.rest(REFUSED)
    if rest:
        yield Message(role="user", text=text_of(rest, kinds=TEXT, at=at))


def error(refused: RefusedRequestError) -> dict[str, Any]:
    """An error in this API's form."""
    usual = "invalid_request_error" if refused.status < 500 else "api_error"
    kind = ERROR_TYPES.get(refused.status, usual)
    return {"type": "error", "error": {"type": kind, "message": str(refused)}}


def answer(reply: Reply, asked: Asked) -> dict[str, Any]:
    """A whole answer."""
    (choice,) = reply.choices
    blocks: list[dict[str, Any]] = []
    if choice.text or not choice.calls:
        blocks.append({"type": "text", "text": choice.text})
    blocks += [_call(call, json.loads(call.arguments)) for call in choice.calls]
    return _message(reply.id, asked.model) | {
        "content": blocks,
        **_stop(choice),
        "usage": {"input_tokens": reply.prompt_tokens, "output_tokens": reply.output_tokens},
    }


class Stream:
    """The events of a streamed answer."""

    def __init__(self, asked: Asked, *, number: str, created: int) -> None:
        """Begin an answer; no event is made yet."""
        self._asked, self._number = asked, number
        self._has_text = False

    def begin(self) -> bytes:
        """The first event."""
        usage = {"input_tokens": 0, "output_tokens": 0}
        message = _message(self._number, self._asked.model) | {"content": [], "usage": usage}
        message |= {"stop_reason": None, "stop_sequence": None}
        return _event("message_start", message=message)

    def text(self, index: int, part: str) -> bytes:
        """The event of a part of the text."""
        events = b""
        if not self._has_text:
            self._has_text = True
            block = {"type": "text", "text": ""}
            events = _event("content_block_start", index=0, content_block=block)
        delta = {"type": "text_delta", "text": part}
        return events + _event("content_block_delta", index=0, delta=delta)

    def end(self, reply: Reply) -> bytes:
        """The events behind all text."""
        (choice,) = reply.choices
        first = int(self._has_text)
        events = _event("content_block_stop", index=0) if self._has_text else b""
        for index, call in enumerate(choice.calls, start=first):
            delta = {"type": "input_json_delta", "partial_json": call.arguments}
            events += _event("content_block_start", index=index, content_block=_call(call, {}))
            events += _event("content_block_delta", index=index, delta=delta)
            events += _event("content_block_stop", index=index)
        usage = {"input_tokens": reply.prompt_tokens, "output_tokens": reply.output_tokens}
        events += _event("message_delta", delta=_stop(choice), usage=usage)
        return events + _event("message_stop")

    def failed(self, refused: RefusedRequestError) -> bytes:
        """The event of an answer that cannot be completed."""
        return _event("error", **error(refused))


def _event(kind: str, **values: Any) -> bytes:
    data = json.dumps({"type": kind, **values})
    return f"event: {kind}\ndata: {data}\n\n".encode()


def _message(number: str, model: str) -> dict[str, Any]:
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model}


def _call(call: Call, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _stop(choice: Choice) -> dict[str, Any]:
    reason = "stop_sequence" if choice.stop is not None else FINISH[choice.finish]
    return {"stop_reason": reason, "stop_sequence": choice.stop}
