"""The agent's half of an episode that the user's agent acts out in the container ``code``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rl_sampler.agents.context import show
from rl_sampler.agents.member import Member
from rl_sampler.code.client import Channel, CodeContainerError
from rl_sampler.code.replies import Move
from rl_sampler.tools.formats import WantedCall


def opening_of(member: Member) -> dict[str, Any]:
    """The request that begins the episode."""
    return {
        "call": "act",
        "messages": [message.model_dump(mode="json") for message in member.messages],
        "fields": dict(member.fields),
        **_state(member),
    }


async def follow(member: Member, channel: Channel) -> Move:
    """Do what the user's agent asks for, until it ends.

    Returns:
        Its last message, with the reason or the failure.

    Raises:
        CodeContainerError: the container ended.
        RLError: whatever ends an episode of any agent: a full context, a tool that is down, ….
    """
    while True:
        move = await channel.receive(Move)
        if move.do is None:
            return move
        answer = await DEEDS[move.do](member, move)
        await channel.send({**answer, **_state(member)})


def _state(member: Member) -> dict[str, Any]:
    return {
        "room": member.room,
        "turns": len(member.turns),
        "turn": member.turns[-1].model_dump(mode="json"),
    }


async def _respond(member: Member, move: Move) -> dict[str, Any]:
    await member.respond(limit=move.limit)
    return {}


async def _show(member: Member, move: Move) -> dict[str, Any]:
    if not move.messages:
        raise CodeContainerError("the user's agent showed no message: show at least one")
    # The text may be a tool's or a user's, whose special tokens must not end a turn.
    messages = [
        {
            key: member.chat.harmless(text)
            for key, text in message.model_dump(exclude_none=True).items()
        }
        for message in move.messages
    ]
    return {"shown": await show(member, messages)}


async def _calls(member: Member, move: Move) -> dict[str, Any]:
    # Text that the user's agent has changed may lack the thoughts, and with them their end.
    turn = next((turn for turn in reversed(member.turns) if turn.text == move.text), None)
    opened = turn is not None and member.opens_thinking(turn)
    parsed = await member.calls_in(move.text, opened=opened)
    calls = [{"tool": call.tool, "arguments": call.arguments} for call in parsed.calls]
    return {"calls": calls, "malformed": parsed.malformed}


async def _make(member: Member, move: Move) -> dict[str, Any]:
    wanted = [WantedCall(tool=call.tool, arguments=call.arguments) for call in move.calls]
    made = await member.make(wanted)
    return {
        "calls": [call.model_dump(mode="json") for call in made],
        "messages": [dict(member.chat.result(call.tool, call.result)) for call in made],
    }


async def _listen(member: Member, move: Move) -> dict[str, Any]:
    return {"text": await member.listen()}


async def _blame(member: Member, move: Move) -> dict[str, Any]:
    member.blame(move.text)
    return {}


async def _conversation(member: Member, move: Move) -> dict[str, Any]:
    return {"messages": member.conversation}


DEEDS: dict[str, Callable[[Member, Move], Awaitable[dict[str, Any]]]] = {
    "respond": _respond,
    "show": _show,
    "calls": _calls,
    "make": _make,
    "listen": _listen,
    "blame": _blame,
    "conversation": _conversation,
}
"""By ``Move.do``."""
