"""The events of an episode while it goes on: text as it is sampled, and turns as they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rl_contracts.requested import AgainEvent, Event, TextEvent, TurnEvent
from rl_contracts.spec.agent.agents import Agent
from rl_sampler.agents.member import Member
from rl_sampler.agents.policy import Listener
from rl_sampler.gateway.visible import GrowingText

Decode = Callable[[Sequence[int]], str]


class Listening:
    """The events of one episode, in their order; on the event loop alone.

    A listener that is slow holds nothing up: text that it has not heard yet is bounded by the
    tokens of the episode.
    """

    def __init__(self) -> None:
        """Nothing was said yet."""
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def add(self, event: Event) -> None:
        """Add an event."""
        self._events.put_nowait(event)

    async def next(self) -> Event:
        """The next event, once there is one."""
        return await self._events.get()

    def on_turn(self, agent: Agent) -> Callable[[Member], None] | None:
        """What adds an event for each finished turn of a member; None where the agent is a program.

        A program's responses may branch, so that their order as turns is known only at its end.
        """

        def turn_ended(member: Member) -> None:
            self.add(TurnEvent(turn=member.turns[-1]))

        return None if agent.program is not None else turn_ended

    def listener(self, decode: Decode) -> Listener:
        """Hears the responses of one member; ``decode`` makes text of token ids."""
        growing = GrowingText(decode, ())

        async def progress(number: int, tokens: list[int]) -> None:
            text = growing.grow(tokens)
            if text:
                self.add(TextEvent(text=text))

        def begins(again: bool) -> None:
            nonlocal growing
            if again and growing.sent:
                self.add(AgainEvent())
            growing = GrowingText(decode, ())

        return Listener(progress=progress, begins=begins)
