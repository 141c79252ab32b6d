"""The delta rule: which tokens stand between a response and the policy's next turn.

A conversation's tokens only grow. Each turn the chat template renders the new messages alone,
behind a fixed short exchange whose rendering is known: what follows that exchange's last stop token
is what the policy is shown next. Nothing that the policy generated is ever rendered or tokenized.

A template for which that does not hold is refused: one whose rendering of the exchange changes with
what comes after it, one that ends the policy's turn with no stop token, one that leaves messages
out, or one whose rendering depends on how long the conversation is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rl_sampler.agents.prompt import PromptError

Message = Mapping[str, Any]
Render = Callable[[Sequence[Message]], str]
"""Messages as the template's text, with the start of the policy's turn at its end."""
Encode = Callable[[str], list[int]]

MARK = "fixedprefix"
PROBE = "probedresult"
CALL_ID = "callidcal"
QUESTION: Message = {"role": "user", "content": "x"}


class TemplateRefusedError(PromptError):
    """The chat template cannot continue a conversation; the user must choose another."""


class Continuation:
    """The delta rule for one chat template and one set of tools."""

    def __init__(self, render: Render, encode: Encode, *, stops: Sequence[str]) -> None:
        """Prepare.

        Args:
            render: the chat template, with its tools.
            encode: text to token ids, special tokens as such, none added.
            stops: texts of the tokens that end a turn.
        """
        self._render, self._encode, self._stops = render, encode, stops
        self._prefixes: dict[str, tuple[str, list[int]]] = {}

    def check(self, *, role: str) -> None:
        """Try the template with messages of a role.

        Raises:
            TemplateRefusedError: the rule does not hold for it.
        """
        probe, response = _message(role, PROBE), _response(role)
        short = [QUESTION, response, probe]
        found = [
            self._render(one)[len(self._prefix_of(one)) :]
            for one in (short, [*short, response, probe])
        ]
        if PROBE not in found[0]:
            raise TemplateRefusedError(f"the chat template leaves out messages of role {role!r}")
        if found[0] != found[1]:
            raise TemplateRefusedError(
                "what the chat template makes of a message depends on the messages before it"
            )

    def tokens(self, messages: Sequence[Message]) -> list[int]:
        """Token ids from behind a response up to where the policy's next turn begins.

        Args:
            messages: that follow the response, at least one, all of one role.

        Raises:
            TemplateRefusedError: the rule does not hold for them.
        """
        role = str(messages[0]["role"])
        prefix, ids = self._prefix(role)
        text = self._render([QUESTION, _response(role), *messages])
        found = self._encode(text)
        if not text.startswith(prefix) or found[: len(ids)] != ids:
            raise TemplateRefusedError(
                "what the chat template makes of earlier messages changes with those after them"
            )
        return found[len(ids) :]

    def _prefix(self, role: str) -> tuple[str, list[int]]:
        if role not in self._prefixes:
            text = self._prefix_of([QUESTION, _response(role), _message(role, PROBE)])
            self._prefixes[role] = text, self._encode(text)
        return self._prefixes[role]

    def _prefix_of(self, messages: Sequence[Message]) -> str:
        """The rendering up to and with the stop token of the last marked response."""
        text = self._render(messages)
        mark = text.rfind(MARK)
        if mark < 0:
            raise TemplateRefusedError("the chat template leaves out the policy's own messages")
        ends = [at + len(stop) for stop in self._stops if (at := text.find(stop, mark)) >= 0]
        if not ends:
            shown = ", ".join(self._stops) or "none"
            raise TemplateRefusedError(
                f"the chat template ends the policy's turn with no stop token (known: {shown})"
            )
        return text[: min(ends)]


def tool_message(tool: str, content: str) -> Message:
    """A tool's result, as chat templates expect it."""
    return {"role": "tool", "name": tool, "tool_call_id": CALL_ID, "content": content}


def _message(role: str, content: str) -> Message:
    if role == "tool":
        return tool_message(MARK, content)
    return {"role": role, "content": content}


def _response(role: str) -> Message:
    """The policy's message that messages of ``role`` follow."""
    if role != "tool":
        return {"role": "assistant", "content": MARK}
    function = {"name": MARK, "arguments": {"value": MARK}}
    call = {"id": CALL_ID, "type": "function", "function": function}
    return {"role": "assistant", "content": MARK, "tool_calls": [call]}
