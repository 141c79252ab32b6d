"""A group member as the user's agent sees it; the agent's process acts for it, message by message.

The policy, the tokens and the tools stay in the agent. Where something there ends the episode, such
as a full context, a tool that is down or the end of the claim, the connection closes, and the
user's agent is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rl_contracts.documents.rollout import ToolCall, Turn
from rl_contracts.documents.task import Message
from rl_sampler.tools.formats import Parsed, WantedCall

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Sends a request to the agent's process and returns the answer."""


class Member:
    """An episode of the policy, whose first response was sampled already."""

    def __init__(self, ask: Ask, opening: Mapping[str, Any]) -> None:
        """Take the agent's request ``act``, and the way back to it."""
        self._ask, self._one_at_a_time = ask, asyncio.Lock()
        self.messages: Sequence[Message] = [
            Message.model_validate(message) for message in opening["messages"]
        ]
        """Of the task."""
        self.fields: Mapping[str, Any] = opening["fields"]
        """Fields of the record that ``columns.fields`` names; only those that the record has."""
        self.turns: list[Turn] = [Turn.model_validate(opening["turn"])]
        """The policy's responses, with their tool calls."""
        self.room: int = opening["room"]
        """Tokens that the next response may have before the context is full."""

    async def respond(self, *, limit: int | None = None) -> Turn:
        """Sample the policy's next response; with a full context the episode ends here.

        Args:
            limit: most tokens of the response; ``maxTokensPerTurn`` by default.
        """
        await self._do("respond", limit=limit)
        return self.turns[-1]

    async def show(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Put messages behind the last response, and make room as ``agent.context`` says.

        Args:
            messages: at least 1, with ``role`` and ``content``, all of one role.

        Returns:
            False where no token could follow; then nothing has changed.
        """
        answer = await self._do("show", messages=[dict(message) for message in messages])
        return bool(answer["shown"])

    async def calls(self, turn: Turn) -> Parsed:
        """The tool calls in a response."""
        answer = await self._do("calls", text=turn.text)
        calls = [
            WantedCall(tool=call["tool"], arguments=call["arguments"]) for call in answer["calls"]
        ]
        return Parsed(calls=calls, malformed=answer["malformed"])

    async def make(self, wanted: Sequence[WantedCall]) -> list[ToolCall]:
        """Make tool calls of the last response, concurrently; the turn records them."""
        answer = await self._make(wanted)
        return [ToolCall.model_validate(call) for call in answer["calls"]]

    async def use(self, wanted: Sequence[WantedCall]) -> list[Mapping[str, Any]]:
        """Make tool calls of the last response; returns their results as messages for ``show``."""
        answer = await self._make(wanted)
        return list(answer["messages"])

    async def listen(self) -> str | None:
        """The next message of the user of ``agent.user`` or of the scenario; None: no more."""
        answer = await self._do("listen")
        text: str | None = answer["text"]
        return text

    async def blame(self, message: str) -> None:
        """Record what the policy did wrong in its last response."""
        await self._do("blame", text=message)

    async def conversation(self) -> list[dict[str, str]]:
        """``role`` and ``content`` of all messages of the current context."""
        answer = await self._do("conversation")
        return list(answer["messages"])

    async def _make(self, wanted: Sequence[WantedCall]) -> dict[str, Any]:
        calls = [{"tool": call.tool, "arguments": call.arguments} for call in wanted]
        return await self._do("make", calls=calls)

    async def _do(self, what: str, **arguments: Any) -> dict[str, Any]:
        async with self._one_at_a_time:
            answer = await self._ask({"do": what, **arguments})
        self.room = answer["room"]
        turn = Turn.model_validate(answer["turn"])
        self.turns[answer["turns"] - 1 :] = [turn]
        return answer


async def show(member: Member, messages: Sequence[Mapping[str, Any]]) -> bool:
    """As ``member.show(messages)``."""
    return await member.show(messages)
