"""Converts a request's messages to token ids, with the chat template and the delta rule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rl_sampler.agents.chat import Chat
from rl_sampler.gateway.asked import Call, Message


def whole(chat: Chat, messages: Sequence[Message]) -> list[int]:
    """Token ids of a conversation that continues no other; raises PromptError."""
    return chat.whole([_in_chat_form(chat, message) for message in messages])


def behind_a_response(
    chat: Chat, messages: Sequence[Message], *, response: Sequence[int]
) -> list[int]:
    """Token ids between a response and the policy's next turn.

    Args:
        chat: the model's template with the request's tools.
        messages: what follows the response: at least 1, none of the policy.
        response: its tokens.

    Raises:
        PromptError: the template refuses these messages, or breaks the delta rule with them.
    """
    # Results of tools first: the rule shows them behind an exchange that has a call.
    ordered = sorted(messages, key=lambda message: message.role != "tool")
    for unusual in {message.role for message in ordered} - {"tool", "user"}:
        chat.check_role(unusual)
    shown = [_in_chat_form(chat, message) for message in ordered]
    return chat.between(shown, response=response)


def _in_chat_form(chat: Chat, message: Message) -> Mapping[str, Any]:
    if message.role == "tool":
        return chat.result(message.tool, message.text)
    shown = dict(chat.outside_message(message.role, message.text))
    if message.calls:
        shown["tool_calls"] = [_call(chat, call) for call in message.calls]
    return shown


def _call(chat: Chat, call: Call) -> dict[str, Any]:
    try:
        arguments: Any = json.loads(call.arguments or "{}")
        # Escapes may hold half a surrogate pair, which is no text.
        json.dumps(arguments, ensure_ascii=False).encode()
        arguments = chat.harmless_json(arguments)
    except (ValueError, RecursionError):
        arguments = {"value": chat.harmless(call.arguments)}
    function = {"name": chat.harmless(call.name), "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}
