"""OpenAI's responses: parses requests and writes answers, whole or as a stream.

Fields are used, ignored by name, or refused, as in ``openai_chat``. Nothing is stored for a later
request: each sends the whole conversation, as the official SDKs do by default.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rl_sampler.gateway import openai_chat
from rl_sampler.gateway.asked import Asked, Call, Message, RefusedRequestError, Reply, Role
from rl_sampler.gateway.body import (
    MOST_TOOLS,
    Body,
    check_turns,
    result_of,
    stop_texts,
    text_of,
    tool_of,
)
from rl_sampler.gateway.openai_chat import error, token_logprobs, tool_choice
from rl_sampler.tools.tool import Tool

MOST_TOKENS = 1 << 20
IGNORED = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "temperature",
        "top_p",
        "truncation",
        "user",
    }
)
REFUSED = openai_chat.REFUSED | {"tool_calls"}
"""Fields of items that would change what the policy is shown, or would lose its calls."""
OF_ANSWERS = frozenset({"id", "status"})
"""Fields of items that say nothing: answers have them, and programs send them back."""
PARTS = ("input_text", "output_text", "text")
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
LOGPROBS = "message.output_text.logprobs"
INCLUDED = (LOGPROBS, "reasoning.encrypted_content")
STATELESS = "is not supported: send the whole conversation in input"

__all__ = ["Stream", "answer", "error", "parse"]


def parse(values: object) -> Asked:
    """Parse a request; raises RefusedRequestError."""
    body = Body(values)
    instructions = body.take("instructions", str, "")
    messages = [Message(role="system", text=instructions)] if instructions else []
    ignored: set[str] = set()
    messages += _messages(body.any("input"), ignored)
    check_turns(messages, parameter="input")
    include = body.take("include", list, [])
    if any(name not in INCLUDED for name in include):
        body.refuse("include", f"may name {' and '.join(INCLUDED)}")
    _check_text(body)
    asked = Asked(
        messages=tuple(messages),
        tools=tuple(_tools(body.take("tools", list, []))),
        calls_allowed=tool_choice(body),
        parallel=body.take("parallel_tool_calls", bool, True),
        most_tokens=body.count("max_output_tokens", None, most=MOST_TOKENS),
        stops=stop_texts(body, "stop"),
        stream=body.take("stream", bool, False),
        logprobs=LOGPROBS in include,
        model=body.required("model", str),
        ignored=(*body.ignore(IGNORED), *sorted(ignored)),
    )
    body.only("top_logprobs", [0], "must be 0: only sampled tokens have log-probabilities")
    body.only("background", [False], "must be false: no response outlives its request")
    body.only("previous_response_id", [None], STATELESS)
    body.only("conversation", [None], STATELESS)
    body.end()
    return asked


def _check_text(body: Body) -> None:
    text = Body(body.take("text", dict, {}), at="text")
    why = "must be text: a constrained response would have other log-probabilities"
    text.only("format", [{"type": "text"}], why)


def _messages(given: object, ignored: set[str]) -> Iterator[Message]:
    """The conversation; items of one response become one message.

    ``ignored`` gets the names of fields that have no effect.
    """
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list):
        raise RefusedRequestError("input must be a string or a list", parameter="input")
    names: dict[str, str] = {}
    response: Message | None = None
    for index, values in enumerate(items):
        item = Body(values, at=f"input[{index}]")
        message = _item(item, names, at=f"input[{index}]")
        item.ignore(OF_ANSWERS)
        ignored |= item.rest(REFUSED)
        if message is None:
            continue
        if message.role == "assistant":
            before = response or Message(role="assistant", text="")
            response = Message(
                role="assistant",
                text=before.text + message.text,
                calls=before.calls + message.calls,
            )
            continue
        if response is not None:
            yield response
            response = None
        yield message
    if response is not None:
        yield response


def _item(item: Body, names: dict[str, str], *, at: str) -> Message | None:
    """A message; None for an item that shows the policy nothing."""
    kind = item.take("type", str, "message")
    if kind == "message":
        role = item.required("role", str)
        if role not in ROLES:
            item.refuse("role", f"is {role!r}: use system, developer, user or assistant")
        text = text_of(item.any("content"), kinds=PARTS, at=f"{at}.content")
        return Message(role=ROLES[role], text=text)
    if kind == "function_call":
        call_id, name = item.required("call_id", str), item.required("name", str)
        names[call_id] = name
        call = Call(id=call_id, name=name, arguments=item.take("arguments", str, "{}"))
        return Message(role="assistant", text="", calls=(call,))
    if kind == "function_call_output":
        text = text_of(item.any("output"), kinds=PARTS, at=f"{at}.output")
        return result_of(item.any("call_id"), names, text, at=at)
    if kind != "reasoning":
        item.refuse("type", f"is {kind!r}: this policy reads text and function calls only")
    return None


def _tools(listed: list[Any]) -> Iterator[Tool]:
    if len(listed) > MOST_TOOLS:
        raise RefusedRequestError(f"more than {MOST_TOOLS} tools", parameter="tools")
    for index, values in enumerate(listed):
        tool = Body(values, at=f"tools[{index}]")
        tool.only("type", ["function"], "must be function: hosted tools are not here")
        yield tool_of(
            tool.any("name"), tool.any("description"), tool.any("parameters"), at=f"tools[{index}]"
        )


def answer(reply: Reply, asked: Asked) -> dict[str, Any]:
    """A whole answer."""
    (choice,) = reply.choices
    status = "incomplete" if choice.finish == "length" else "completed"
    output: list[dict[str, Any]] = []
    if choice.text or not choice.calls:
        logprobs = token_logprobs(choice) if asked.logprobs else []
        output.append(_text_item(reply.id, choice.text, status, logprobs))
    output += [_call_item(call, call.arguments, "completed") for call in choice.calls]
    usage = {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.prompt_tokens + reply.output_tokens,
    }
    return _head(reply.id, reply.created, asked, status) | {"output": output, "usage": usage}


class Stream:
    """The events of a streamed answer."""

    def __init__(self, asked: Asked, *, number: str, created: int) -> None:
        """Begin an answer; no event is made yet."""
        self._asked, self._number, self._created = asked, number, created
        self._events = 0
        self._text = ""
        self._has_text = False

    def begin(self) -> bytes:
        """The first events."""
        head = _head(self._number, self._created, self._asked, "in_progress")
        return b"".join(
            self._event(kind, response=head)
            for kind in ("response.created", "response.in_progress")
        )

    def text(self, index: int, part: str) -> bytes:
        """The event of a part of the text."""
        events = b"" if self._has_text else self._begin_text()
        self._text += part
        return events + self._event(
            "response.output_text.delta", **self._in_text(), delta=part, logprobs=[]
        )

    def end(self, reply: Reply) -> bytes:
        """The events behind all text."""
        whole = answer(reply, self._asked) | {
            "id": f"resp_{self._number}",
            "created_at": self._created,
        }
        calls = reply.choices[0].calls
        events = b""
        if not calls and not self._has_text:
            events += self._begin_text()
        if self._has_text:
            item = whole["output"][0] | {"id": f"msg_{self._number}"}
            whole["output"][0] = item
            events += self._end_text(item)
        for index, call in enumerate(calls, start=int(self._has_text)):
            events += self._call(index, call)
        ended = "response.completed" if whole["status"] == "completed" else "response.incomplete"
        return events + self._event(ended, response=whole)

    def failed(self, refused: RefusedRequestError) -> bytes:
        """The event of an answer that cannot be completed."""
        return self._event("error", **error(refused)["error"])

    def _begin_text(self) -> bytes:
        self._has_text = True
        item = _text_item(self._number, "", "in_progress", []) | {"content": []}
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return self._event("response.output_item.added", output_index=0, item=item) + self._event(
            "response.content_part.added", **self._in_text(), part=part
        )

    def _end_text(self, item: dict[str, Any]) -> bytes:
        (part,) = item["content"]
        return b"".join(
            (
                self._event(
                    "response.output_text.done",
                    **self._in_text(),
                    text=self._text,
                    logprobs=part["logprobs"],
                ),
                self._event("response.content_part.done", **self._in_text(), part=part),
                self._event("response.output_item.done", output_index=0, item=item),
            )
        )

    def _call(self, index: int, call: Call) -> bytes:
        where = {"item_id": f"fc_{call.id}", "output_index": index}
        begun = _call_item(call, "", "in_progress")
        ended = _call_item(call, call.arguments, "completed")
        delta = {**where, "delta": call.arguments}
        done = {**where, "name": call.name, "arguments": call.arguments}
        return b"".join(
            (
                self._event("response.output_item.added", output_index=index, item=begun),
                self._event("response.function_call_arguments.delta", **delta),
                self._event("response.function_call_arguments.done", **done),
                self._event("response.output_item.done", output_index=index, item=ended),
            )
        )

    def _in_text(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self._number}", "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **values: Any) -> bytes:
        values = values | {"type": kind, "sequence_number": self._events}
        self._events += 1
        return f"event: {kind}\ndata: {json.dumps(values)}\n\n".encode()


def _head(number: str, created: int, asked: Asked, status: str) -> dict[str, Any]:
    cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": created,
        "status": status,
        "model": asked.model,
        "output": [],
        "error": None,
        "incomplete_details": cut,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": asked.parallel,
        "temperature": None,
        "top_p": None,
        "tool_choice": "auto" if asked.calls_allowed else "none",
        "tools": [],
    }


def _text_item(
    number: str, text: str, status: str, logprobs: list[dict[str, Any]]
) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [part],
    }


def _call_item(call: Call, arguments: str, status: str) -> dict[str, Any]:
    return {
        "id": f"fc_{call.id}",
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments,
        "status": status,
    }
