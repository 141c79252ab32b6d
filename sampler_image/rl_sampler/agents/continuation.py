"""The delta rule: computes the tokens between a response and the policy's next turn.

A conversation's tokens are only appended to. For each turn the chat template renders the new
messages alone, behind a fixed short exchange whose rendering is known. What follows the last stop
token of that exchange is appended. Nothing that the policy generated is rendered or tokenized.

Templates that break the rule are refused: where the rendering of the exchange changes with later
messages, where the policy's turn does not end with a stop token, where messages are left out, or
where the rendering depends on the length of the conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rl_sampler.agents.prompt import PromptError

Message = Mapping[str, Any]
Render = Callable[[Sequence[Message]], str]
"""Renders messages to text that ends with the start of the policy's turn."""
Encode = Callable[[str], list[int]]

MARK = "fixedprefix"
PROBE = "probedresult"
CALL_ID = "callidcal"
TOOL = "probedtool"
"""Name of a tool, which some templates (gpt-oss) repeat in front of its result."""
QUESTION: Message = {"role": "user", "content": "x"}


class TemplateRefusedError(PromptError):
    """The chat template cannot continue a conversation; the user must choose another."""


class Continuation:
    """The delta rule for one chat template and one set of tools."""

    def __init__(
        self,
        render: Render,
        encode: Encode,
        *,
        stops: Sequence[str],
        tools: Collection[str] = (),
    ) -> None:
        """Use a chat template.

        Args:
            render: the chat template, with its tools.
            encode: text to token ids; special tokens become their ids, and none are added.
            stops: texts of the tokens that end a turn.
            tools: names of tools. Templates may name the one that was called with its result.
        """
        self._render, self._encode, self._stops = render, encode, stops
        self._tools = frozenset(tools)
        self._prefixes: dict[tuple[str, str], tuple[str, list[int]]] = {}

    def check(self, *, role: str) -> None:
        """Try the template with messages of a role.

        Raises:
            TemplateRefusedError: the template breaks the delta rule.
        """
        probe, response = _message(role, PROBE), _response(role)
        short = [QUESTION, response, probe]
        after_short, after_long = (
            self._render(messages)[len(self._prefix_of(messages)) :]
            for messages in (short, [*short, response, probe])
        )
        if PROBE not in after_short:
            raise TemplateRefusedError(f"the chat template leaves out messages of role {role!r}")
        if after_short != after_long:
            raise TemplateRefusedError(
                "the chat template renders a message differently after a longer conversation"
            )

    def tokens(self, messages: Sequence[Message]) -> list[int]:
        """Token ids from the end of a response to the start of the policy's next turn.

        Args:
            messages: those that follow the response: at least 1, none of the policy. Results of
                tools come first.

        Raises:
            TemplateRefusedError: the template breaks the delta rule for these messages.
        """
        role, tool = str(messages[0]["role"]), str(messages[0].get("name", TOOL))
        tool = tool if tool in self._tools else TOOL
        prefix, ids = self._prefix(role, tool)
        text = self._render([QUESTION, _response(role, tool), *messages])
        tokens = self._encode(text)
        if not text.startswith(prefix) or tokens[: len(ids)] != ids:
            raise TemplateRefusedError(
                "the chat template renders earlier messages differently when messages follow them"
            )
        return tokens[len(ids) :]

    def closing(self, role: str) -> int:
        """The token that ends a turn of the policy that messages of a role follow.

        It stands behind a response that was cut, so that the next message can follow it.
        """
        return self._prefix(role)[1][-1]

    def _prefix(self, role: str, tool: str = TOOL) -> tuple[str, list[int]]:
        if (role, tool) not in self._prefixes:
            text = self._prefix_of([QUESTION, _response(role, tool), _message(role, PROBE)])
            self._prefixes[role, tool] = text, self._encode(text)
        return self._prefixes[role, tool]

    def _prefix_of(self, messages: Sequence[Message]) -> str:
        """The rendering up to and including the stop token of the last marked response."""
        text = self._render(messages)
        mark = text.rfind(MARK)
        if mark < 0:
            raise TemplateRefusedError("the chat template leaves out the policy's own messages")
        ends = [at + len(stop) for stop in self._stops if (at := text.find(stop, mark)) >= 0]
        if not ends:
            shown = ", ".join(self._stops) or "none"
            raise TemplateRefusedError(
                f"the chat template ends the policy's turn without a stop token; the model's stop "
                f"tokens are: {shown}"
            )
        return text[: min(ends)]


def tool_message(tool: str, content: object) -> Message:
    """The message with a tool's result, in the form that chat templates take."""
    return {"role": "tool", "name": tool, "tool_call_id": CALL_ID, "content": content}


def _message(role: str, content: str) -> Message:
    if role == "tool":
        return tool_message(TOOL, content)
    return {"role": role, "content": content}


def _response(role: str, tool: str = TOOL) -> Message:
    """A message of the policy that messages of ``role`` can follow."""
    if role != "tool":
        return {"role": "assistant", "content": MARK}
    function = {"name": tool, "arguments": {"value": MARK}}
    call = {"id": CALL_ID, "type": "function", "function": function}
    return {"role": "assistant", "content": MARK, "tool_calls": [call]}
