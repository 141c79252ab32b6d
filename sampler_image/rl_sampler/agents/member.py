"""One member's episode, as an agent acts it out: what it may ask, and what is written down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rl_contracts.documents.rollout import RolloutError, ToolCall, Turn
from rl_contracts.documents.task import Message, Task
from rl_contracts.errors import RLError
from rl_contracts.spec.agent.agents import Agent
from rl_sampler.agents.chat import Chat
from rl_sampler.agents.policy import Policy, Sampled
from rl_sampler.agents.trace import Trace
from rl_sampler.agents.user import User, Users
from rl_sampler.engine.protocol import Generation
from rl_sampler.tools.formats import Parsed, WantedCall, parse_calls
from rl_sampler.tools.tool import ToolDownError
from rl_sampler.tools.toolbox import Tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The first response, sampled for the whole group in one call."""

    prompt: Sequence[int]
    generation: Generation
    sampled: Sampled
    """The whole group's."""

    @classmethod
    def of_group(cls, prompt: Sequence[int], sampled: Sampled) -> list[Opening]:
        """One for each member."""
        return [
            cls(prompt=prompt, generation=generation, sampled=sampled)
            for generation in sampled.generations
        ]


@dataclass(frozen=True, slots=True)
class Said:
    """A response."""

    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class Shown:
    """Messages behind a response."""

    messages: Sequence[Mapping[str, Any]]


Segment = Said | Shown


class ContextFullError(RLError):
    """The policy was asked again though not one token could follow."""


@dataclass(slots=True, kw_only=True)
class Member:
    """One group member's episode."""

    agent: Agent
    messages: Sequence[Message]
    """The task's."""
    chat: Chat
    policy: Policy
    tools: Tools
    user: User
    trace: Trace = field(default_factory=Trace)
    turns: list[Turn] = field(default_factory=list)
    history: list[Segment] = field(default_factory=list)
    """What followed the prompt of the present sequence."""
    prompt: Sequence[int] = ()
    """Of the present sequence."""

    @property
    def room(self) -> int:
        """Tokens that the next response may have before the context is full."""
        return self.policy.room(len(self.trace))

    @property
    def conversation(self) -> list[dict[str, str]]:
        """``role`` and ``content`` of all messages of the present sequence."""
        said = [{"role": message.role, "content": message.text} for message in self.messages]
        for segment in self.history:
            if isinstance(segment, Said):
                said.append({"role": "assistant", "content": self.chat.decode(segment.tokens)})
            else:
                said += [
                    {"role": str(message["role"]), "content": str(message["content"])}
                    for message in segment.messages
                ]
        return said

    def open(self, opening: Opening) -> Turn:
        """Take over the group's first response."""
        self.begin(opening.prompt)
        return self._take(opening.generation, opening.sampled)

    def begin(self, prompt: Sequence[int], history: Sequence[Segment] = ()) -> bool:
        """Begin a sequence: a prompt, and what follows it as it stands.

        Returns:
            False where no token could follow; then nothing has changed.
        """
        tokens = list(prompt)
        for one in history:
            tokens += one.tokens if isinstance(one, Said) else self.chat.between(one.messages)
        if self.policy.room(len(tokens)) < 1:
            return False
        self.prompt, self.history = prompt, list(history)
        self.trace.restart(tokens)
        return True

    async def respond(self, *, limit: int | None = None) -> Turn:
        """The policy's next turn, of ``maxTokensPerTurn`` or ``limit`` tokens at most.

        Raises:
            ContextFullError: there is no room.
            EngineError, EpisodeEndedError, UnusableError: as Policy.sample.
        """
        if self.room < 1:
            raise ContextFullError("the context is full")
        sampled = await self.policy.sample(self.trace.context, limit=limit)
        (generation,) = sampled.generations
        return self._take(generation, sampled)

    def show(self, messages: Sequence[Mapping[str, Any]], tokens: Sequence[int]) -> bool:
        """Put messages behind the last response.

        Args:
            messages: what they are.
            tokens: the same, from the chat.

        Returns:
            False where no token could follow; then nothing has changed.
        """
        if self.room - len(tokens) < 1:
            return False
        self.history.append(Shown(messages))
        self.trace.show(tokens)
        return True

    async def calls(self, turn: Turn) -> Parsed:
        """Read the tool calls of a response; raises EngineError."""
        return await self.policy.claim.attend(
            parse_calls(
                turn.text,
                tools=self.tools.listed,
                form=self.agent.call_format,
                engine=self.policy.engine,
            )
        )

    async def use(self, wanted: Sequence[WantedCall]) -> list[Mapping[str, Any]]:
        """Make the calls of the last response; returns the messages that answer; raises as make."""
        return [self.chat.result(call.tool, call.result) for call in await self.make(wanted)]

    async def make(self, wanted: Sequence[WantedCall]) -> list[ToolCall]:
        """Make the calls of the last response, side by side.

        Raises:
            ToolDownError: a tool does not work; the calls are written down all the same.
            UserCodeError: a function of the user's own failed.
        """
        began = time.monotonic()
        calls = await self.policy.claim.attend(self._call_all(wanted))
        seconds = time.monotonic() - began
        self._amend(calls=calls, tool_seconds=seconds)
        for call in calls:
            if call.outcome == "down":
                raise ToolDownError(call.result)
        return calls

    async def listen(self) -> str | None:
        """What the user says next; None where nothing more. Raises NoCompletionError."""
        return await self.policy.claim.attend(self.user.speak(self.conversation))

    def blame(self, message: str) -> None:
        """Write down what the policy did wrong in its last turn."""
        self._amend(error=RolloutError(kind="model", message=message))

    async def _call_all(self, wanted: Sequence[WantedCall]) -> list[ToolCall]:
        return list(await asyncio.gather(*(self.tools.call(one) for one in wanted)))

    def _take(self, generation: Generation, sampled: Sampled) -> Turn:
        request, response, reason = self.trace.respond(generation, known=self.policy.serving.known)
        self.history.append(Said(generation.output_ids))
        turn = Turn(
            request=request,
            response=response,
            stop_reason=reason,
            text=self.chat.decode(generation.output_ids),
            queue_seconds=sampled.queue_seconds,
            generate_seconds=sampled.generate_seconds,
        )
        self.turns.append(turn)
        return turn

    def _amend(self, **changes: object) -> None:
        self.turns[-1] = self.turns[-1].model_copy(update=changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What the members of a claim have in common."""

    agent: Agent
    task: Task
    chat: Chat
    policy: Policy
    tools: Tools
    users: Users
    messages: Sequence[Message]
    """The task's, with what the agent adds to them."""
    prompt: Sequence[int]

    def policy_of(self, number: int) -> Policy:
        """The policy as a member asks it: the baseline greedily."""
        return replace(self.policy, greedy=self.task.is_baseline(number))

    def member(self, number: int) -> Member:
        """A member before its first response."""
        return Member(
            agent=self.agent,
            messages=self.messages,
            chat=self.chat,
            policy=self.policy_of(number),
            tools=self.tools,
            user=self.users(self.task),
        )
