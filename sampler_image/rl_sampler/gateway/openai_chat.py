"""OpenAI's chat completions: parses requests and writes answers, whole or as a stream.

Fields are used, ignored by name, or refused. Ignored are those that would change the distribution:
the policy is always sampled from all of it, at the job's temperature, or its log-probabilities
would be of no use in training.
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
from rl_sampler.gateway.visible import INCOMPLETE
from rl_sampler.tools.tool import Tool

MOST_CHOICES = 32
MOST_TOKENS = 1 << 20
IGNORED = frozenset(
    {
        "frequency_penalty",
        "metadata",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning_effort",
        "safety_identifier",
        "seed",
        "service_tier",
        "store",
        "temperature",
        "top_k",
        "top_p",
        "user",
        "verbosity",
    }
)
REFUSED = frozenset({"audio", "function_call", "partial", "prefix", "refusal"})
"""Fields of messages that would change what the policy is shown."""
TEXT_PARTS = ("text", "refusal")
NO_FORMAT = "is not supported: a constrained response would have other log-probabilities"
CHOICE_REFUSED = "must be auto or none: a forced call would have other log-probabilities"
ERROR_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def parse(values: object) -> Asked:
    """Parse a request; raises RefusedRequestError."""
    body = Body(values)
    ignored: set[str] = set()
    messages = messages_of(body.required("messages", list), ignored)
    check_turns(messages, parameter="messages")
    tools = tuple(_tools(body.take("tools", list, [])))
    allowed = tool_choice(body)
    most = body.count("max_completion_tokens", None, most=MOST_TOKENS)
    most = most or body.count("max_tokens", None, most=MOST_TOKENS)
    options = Body(body.take("stream_options", dict, {}), at="stream_options")
    asked = Asked(
        messages=messages,
        tools=tools,
        calls_allowed=allowed,
        parallel=body.take("parallel_tool_calls", bool, True),
        choices=body.count("n", 1, most=MOST_CHOICES) or 1,
        most_tokens=most,
        stops=stop_texts(body, "stop"),
        stream=body.take("stream", bool, False),
        logprobs=body.take("logprobs", bool, False),
        stream_usage=options.take("include_usage", bool, False),
        model=body.required("model", str),
        ignored=(
            *body.ignore(IGNORED | {"max_tokens"} if most else IGNORED),
            *sorted(ignored),
        ),
    )
    body.only("top_logprobs", [0], "must be 0: only sampled tokens have log-probabilities")
    body.only("response_format", [{"type": "text"}], NO_FORMAT)
    body.only("modalities", [["text"]], "must be text alone")
    body.only("logit_bias", [{}], "is not supported: it would change the distribution")
    body.end()
    return asked


def tool_choice(body: Body) -> bool:
    """Whether calls are allowed; raises RefusedRequestError where one is forced."""
    choice = body.any("tool_choice") or "auto"
    if choice not in ("auto", "none"):
        body.refuse("tool_choice", CHOICE_REFUSED)
    return bool(choice == "auto")


def messages_of(listed: list[Any], ignored: set[str]) -> tuple[Message, ...]:
    """Parse the messages of a request; raises RefusedRequestError.

    Args:
        listed: the messages.
        ignored: gets the names of fields that have no effect, such as ``reasoning_content``.
    """
    messages: list[Message] = []
    names: dict[str, str] = {}
    for index, values in enumerate(listed):
        at = f"messages[{index}]"
        message = Body(values, at=at)
        role = message.required("role", str)
        text = text_of(message.any("content"), kinds=TEXT_PARTS, at=f"{at}.content")
        if role in ("system", "developer", "user"):
            messages.append(Message(role="user" if role == "user" else "system", text=text))
        elif role == "assistant":
            calls = tuple(_calls(message.take("tool_calls", list, []), at=f"{at}.tool_calls"))
            names |= {call.id: call.name for call in calls}
            messages.append(Message(role="assistant", text=text, calls=calls))
        elif role == "tool":
            messages.append(result_of(message.any("tool_call_id"), names, text, at=at))
        else:
            message.refuse("role", f"is {role!r}: use system, developer, user, assistant or tool")
        ignored |= message.rest(REFUSED)
    return tuple(messages)


def _calls(listed: list[Any], *, at: str) -> Iterator[Call]:
    for index, values in enumerate(listed):
        call = Body(values, at=f"{at}[{index}]")
        call.only("type", ["function"], "must be function")
        function = Body(call.required("function", dict), at=f"{at}[{index}].function")
        name, arguments = function.required("name", str), function.take("arguments", str, "{}")
        yield Call(id=call.required("id", str), name=name, arguments=arguments)


def _tools(listed: list[Any]) -> Iterator[Tool]:
    if len(listed) > MOST_TOOLS:
        raise RefusedRequestError(f"more than {MOST_TOOLS} tools", parameter="tools")
    for index, values in enumerate(listed):
        tool = Body(values, at=f"tools[{index}]")
        tool.only("type", ["function"], "must be function")
        function = tool.required("function", dict)
        yield tool_of(
            function.get("name"),
            function.get("description"),
            function.get("parameters"),
            at=f"tools[{index}].function",
        )


def error(refused: RefusedRequestError) -> dict[str, Any]:
    """An error in this API's form."""
    status = refused.status
    kind = ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {
        "error": {
            "message": str(refused),
            "type": kind,
            "param": refused.parameter,
            "code": refused.code or None,
        }
    }


def answer(reply: Reply, asked: Asked) -> dict[str, Any]:
    """A whole answer."""
    choices = [
        {
            "index": index,
            "message": _message(choice),
            "logprobs": _logprobs(choice) if asked.logprobs else None,
            "finish_reason": choice.finish,
        }
        for index, choice in enumerate(reply.choices)
    ]
    head = _head(reply.id, reply.created, asked.model, "chat.completion")
    return head | {"choices": choices, "usage": _usage(reply)}


class Stream:
    """The events of a streamed answer."""

    def __init__(self, asked: Asked, *, number: str, created: int) -> None:
        """Begin an answer; no event is made yet."""
        self._asked = asked
        self._head = _head(number, created, asked.model, "chat.completion.chunk")

    def begin(self) -> bytes:
        """The first events."""
        delta = {"role": "assistant", "content": ""}
        return b"".join(self._chunk(index, delta) for index in range(self._asked.choices))

    def text(self, index: int, part: str) -> bytes:
        """The event of a part of a choice's text."""
        return self._chunk(index, {"content": part})

    def end(self, reply: Reply) -> bytes:
        """The events behind all text."""
        events = b""
        for index, choice in enumerate(reply.choices):
            for number, call in enumerate(choice.calls):
                events += self._chunk(index, {"tool_calls": [{"index": number, **_call(call)}]})
            logprobs = _logprobs(choice) if self._asked.logprobs else None
            events += self._chunk(index, {}, finish=choice.finish, logprobs=logprobs)
        if self._asked.stream_usage:
            events += _event(self._head | {"choices": [], "usage": _usage(reply)})
        return events + b"data: [DONE]\n\n"

    def failed(self, refused: RefusedRequestError) -> bytes:
        """The event of an answer that cannot be completed."""
        return _event(error(refused))

    def _chunk(
        self,
        index: int,
        delta: Mapping[str, Any],
        *,
        finish: str | None = None,
        logprobs: dict[str, Any] | None = None,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return _event(self._head | {"choices": [choice]})


def _event(values: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(values).encode() + b"\n\n"


def _head(number: str, created: int, model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": created, "model": model}


def _message(choice: Choice) -> dict[str, Any]:
    text = choice.text if choice.text or not choice.calls else None
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if choice.calls:
        message["tool_calls"] = [_call(call) for call in choice.calls]
    return message


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _logprobs(choice: Choice) -> dict[str, Any]:
    return {"content": token_logprobs(choice), "refusal": None}


def token_logprobs(choice: Choice) -> list[dict[str, Any]]:
    """The log-probability of each sampled token, in the form of OpenAI's APIs.

    Bytes are left out for tokens that are a part of a character.
    """
    return [
        {
            "token": piece,
            "logprob": logprob,
            "bytes": None if INCOMPLETE in piece else list(piece.encode()),
            "top_logprobs": [],
        }
        for piece, logprob in zip(choice.pieces, choice.logprobs, strict=True)
    ]


def _usage(reply: Reply) -> dict[str, int]:
    output = reply.output_tokens
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": output,
        "total_tokens": reply.prompt_tokens + output,
    }
