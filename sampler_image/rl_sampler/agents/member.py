"""A group member's episode: what an agent can do in it, and the record of what happened."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_contracts import tracing
from rl_contracts.documents.rollout import (
    EnvironmentOutcome,
    ImageSpan,
    ProgramOutcome,
    Rollout,
    RolloutError,
    ToolCall,
    Turn,
)
from rl_contracts.documents.saved_turn import SavedTurn
from rl_contracts.documents.task import Message
from rl_contracts.errors import RLError
from rl_contracts.spec.agent.agents import Agent
from rl_sampler.agents import saving
from rl_sampler.agents.chat import MARK_TOKENS, Chat
from rl_sampler.agents.images import images_in, placed, text_of
from rl_sampler.agents.policy import Policy, Sampled
from rl_sampler.agents.trace import Trace
from rl_sampler.agents.user import User
from rl_sampler.engine.protocol import Generation
from rl_sampler.tools.formats import Parsed, WantedCall, parse_calls
from rl_sampler.tools.thoughts import visible
from rl_sampler.tools.tool import ToolDownError
from rl_sampler.tools.toolbox import Tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A member's first response, of the call that sampled the first responses of its group."""

    prompt: Sequence[int]
    generation: Generation
    sampled: Sampled
    """Of the whole group."""

    @classmethod
    def of_group(cls, prompt: Sequence[int], sampled: Sampled) -> list[Opening]:
        """The openings of all members of one call."""
        return [
            cls(prompt=prompt, generation=generation, sampled=sampled)
            for generation in sampled.generations
        ]


@dataclass(frozen=True, slots=True)
class GeneratedSegment:
    """A response of the policy."""

    tokens: Sequence[int]
    before: Sequence[int]
    """The last tokens before it."""


@dataclass(frozen=True, slots=True)
class ShownSegment:
    """Messages that follow a response."""

    messages: Sequence[Mapping[str, Any]]


Segment = GeneratedSegment | ShownSegment


class ContextFullError(RLError):
    """An agent asked for another response although the context has no room for one token."""


@dataclass(slots=True, kw_only=True)
class Member:
    """The episode of a group member."""

    agent: Agent
    messages: Sequence[Message]
    """Of the task."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Of the task's record."""
    chat: Chat
    policy: Policy
    tools: Tools
    user: User
    trace: Trace = field(default_factory=Trace)
    turns: list[Turn] = field(default_factory=list)
    history: list[Segment] = field(default_factory=list)
    """All that follows the prompt of the current sequence."""
    prompt: Sequence[int] = ()
    """Token ids of the prompt of the current sequence."""
    number: int = 0
    """In its group."""
    program: ProgramOutcome | None = None
    """How the program of kind ``Program`` ended."""
    reported: float | None = None
    """The reward that the program posted."""
    environment: EnvironmentOutcome | None = None
    """How the session of kind ``Environment`` ended."""
    earned: float | None = None
    """The sum of the rewards of the environment's steps."""
    submitted: str | None = None
    """The answer that a final tool was given; None where scorers read the response's text."""
    finished: list[SavedTurn] = field(default_factory=list)
    """Turns that are over, as another attempt needs them to go on."""
    heard: int = 0
    """How often the user has spoken."""
    saved: Rollout | None = None
    """Turns of an earlier attempt, for an agent that makes its first prompt itself."""
    continues: str = ""
    """The stored rollout whose turns were replayed."""
    replayed_turns: int = 0
    replayed_tokens: int = 0
    """Of the policy, in these turns."""
    on_turn: Callable[[Member], None] | None = None
    """Called with each finished turn; None: nothing is kept for another attempt."""
    forfeited: str = ""
    """Why every scorer's value is 0; empty where they judge."""
    _kept_tokens: int = 0
    """Tokens of the trace that ``finished`` holds."""

    @property
    def room(self) -> int:
        """Tokens that the next response may have before the context is full."""
        return self.policy.room(len(self.trace))

    @property
    def conversation(self) -> list[dict[str, str]]:
        """``role`` and ``content`` of all messages of the current sequence."""
        messages = [{"role": message.role, "content": message.text} for message in self.messages]
        for segment in self.history:
            if isinstance(segment, GeneratedSegment):
                messages.append({"role": "assistant", "content": self.chat.decode(segment.tokens)})
            else:
                messages += [
                    {"role": str(message["role"]), "content": text_of(message)}
                    for message in segment.messages
                ]
        return messages

    @property
    def opened(self) -> list[int]:
        """Which messages of the conversation begin inside of ``<think>``, by index."""
        at, opened = len(self.messages), []
        for segment in self.history:
            if isinstance(segment, ShownSegment):
                at += len(segment.messages)
                continue
            opened += [at] if self.chat.opens_thinking(segment.before) else []
            at += 1
        return opened

    def opens_thinking(self, turn: Turn) -> bool:
        """Whether the text before a response ends with ``<think>``."""
        return self.chat.opens_thinking(self.generated(turn).before)

    def generated(self, turn: Turn) -> GeneratedSegment:
        """The tokens of a response."""
        start, tokens = turn.response.start, self.trace.tokens
        before = tokens[max(0, start - MARK_TOKENS) : start]
        return GeneratedSegment(tokens[start : turn.response.end], before)

    def open(self, opening: Opening) -> Turn:
        """Begin the episode with its first response."""
        self.begin(opening.prompt)
        return self._take(opening.generation, opening.sampled)

    def begin(
        self, prompt: Sequence[int], history: Sequence[Segment] = (), *, below: int | None = None
    ) -> bool:
        """Begin a sequence with a prompt and a history.

        Args:
            prompt: token ids.
            history: what follows the prompt.
            below: the sequence must begin with fewer tokens; None: with any number.

        Returns:
            False where it has too many tokens, or none could follow; then nothing has changed.
        """
        tokens = list(prompt)
        of_prompt = [image for message in self.messages for image in message.images]
        images = placed(tokens, of_prompt, self.chat.placeholders)
        response: Sequence[int] = ()
        for segment in history:
            if isinstance(segment, GeneratedSegment):
                response = segment.tokens
                tokens += response
            else:
                shown = self.chat.between(segment.messages, response=response)
                images += self._placed(shown, segment.messages, start=len(tokens))
                tokens += shown
        too_many = below is not None and len(tokens) >= below
        if too_many or self.policy.room(len(tokens)) < 1:
            return False
        self.prompt, self.history = prompt, list(history)
        self.trace.restart(tokens, images)
        return True

    def _placed(
        self, tokens: Sequence[int], messages: Sequence[Mapping[str, Any]], *, start: int = 0
    ) -> list[ImageSpan]:
        """Where the images of messages are among their tokens, which begin at ``start``."""
        return placed(tokens, images_in(messages), self.chat.placeholders, start=start)

    @property
    def last_tokens(self) -> Sequence[int]:
        """Of the last response."""
        response = self.turns[-1].response
        return self.trace.tokens[response.start : response.end]

    @property
    def generated_placeholder(self) -> bool:
        """Whether the last response holds the placeholder of an image.

        Behind it the engine could not tell which placeholders stand for the images that follow.
        """
        if self.policy.images is None or self.chat.placeholders is None:
            return False
        return self.chat.placeholders.token in self.last_tokens

    def resume(self, saved: Rollout) -> None:
        """Continue an unfinished episode behind its last turn; nothing is sampled or called again.

        Args:
            saved: by an earlier attempt, from the same prompt.
        """
        assert saved.unfinished is not None
        self.trace, self.turns = Trace.of(saved), list(saved.turns)
        self.prompt = self.trace.tokens[: saved.turns[0].response.start]
        self.heard = saved.unfinished.heard
        self.history, self.finished = [], []
        ends = [*(turn.response.start for turn in self.turns[1:]), len(self.trace.tokens)]
        for turn, messages, end in zip(self.turns, saved.unfinished.shown, ends, strict=True):
            self.history += [self.generated(turn), ShownSegment(json.loads(messages))]
            self._keep(turn, messages, end=end)
        self.user.skip(self.heard)
        self.continues, self.replayed_turns = saved.id, len(self.turns)
        self.replayed_tokens = self.trace.mask.count(1)
        # Its oldest token decides how old it is, whoever samples the others.
        self.policy.claim.keep_tokens(saved.oldest_step, member=self.number)

    def finish_turn(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Note that the last turn is over, and what was shown behind it."""
        if self.on_turn is None:
            return
        shown = json.dumps(list(messages), ensure_ascii=False)
        self._keep(self.turns[-1], shown, end=len(self.trace.tokens))
        self.on_turn(self)

    def _keep(self, turn: Turn, shown: str, *, end: int) -> None:
        """Keep a turn whose tokens, with what was shown behind it, end before ``end``."""
        self.finished.append(
            saving.of_trace(
                self.trace,
                turn,
                start=self._kept_tokens,
                end=end,
                shared=saving.of_member(self.policy.claim.task, self.number),
                number=len(self.finished),
                shown=shown,
                heard=self.heard,
            )
        )
        self._kept_tokens = end

    async def respond(self, *, limit: int | None = None) -> Turn:
        """Sample the policy's next turn.

        Args:
            limit: most tokens of the response; ``maxTokensPerTurn`` by default.

        Raises:
            ContextFullError: the context has no room for one token.
            EngineError, EpisodeEndedError, UnusableError: as Policy.sample.
        """
        if self.room < 1:
            raise ContextFullError("the context is full")
        sampled = await self.policy.sample(
            self.trace.context,
            images=self.trace.shown_images,
            limit=limit,
            known=self.trace.routed,
        )
        (generation,) = sampled.generations
        return self._take(generation, sampled)

    def between(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of messages behind the last response; raises TemplateRefusedError."""
        return self.chat.between(messages, response=self.last_tokens)

    def show(self, messages: Sequence[Mapping[str, Any]], tokens: Sequence[int]) -> bool:
        """Append messages to the last response.

        Args:
            messages: the messages.
            tokens: their token ids, from ``between``.

        Returns:
            False where no token could follow; then nothing has changed.
        """
        if self.room - len(tokens) < 1:
            return False
        self.history.append(ShownSegment(messages))
        self.trace.show(tokens, self._placed(tokens, messages))
        return True

    async def calls(self, turn: Turn) -> Parsed:
        """Parse the tool calls of a response, behind its thoughts; raises EngineError."""
        return await self.calls_in(turn.text, opened=self.opens_thinking(turn))

    async def calls_in(self, text: str, *, opened: bool) -> Parsed:
        """Parse the tool calls in a text; raises EngineError.

        Args:
            text: of a response.
            opened: the text before it ended with ``<think>``.
        """
        return await self.policy.claim.run(
            parse_calls(
                text,
                tools=self.tools.listed,
                form=self.agent.call_format,
                engine=self.policy.engine,
                opened=opened,
            )
        )

    def results(self, calls: Sequence[ToolCall]) -> list[Mapping[str, Any]]:
        """The messages with the results of tool calls."""
        return [self.chat.result(call.tool, call.result, call.images) for call in calls]

    async def make(self, wanted: Sequence[WantedCall]) -> list[ToolCall]:
        """Make tool calls of the last response, concurrently.

        Raises:
            ToolDownError: a tool's server is down; the calls are recorded all the same.
            UserCodeError: a function of the user's failed.
        """
        began = time.monotonic()
        calls = await self.policy.claim.run(self._call_all(wanted))
        seconds = time.monotonic() - began
        self._update_last_turn(calls=calls, tool_seconds=seconds)
        for call in calls:
            if call.outcome == "down":
                raise ToolDownError(call.result)
        return calls

    def record_steps(self, calls: Sequence[ToolCall], *, reward: float | None) -> None:
        """Record what the environment made of the last response.

        Args:
            calls: the actions, with what the environment answered.
            reward: the sum of the steps' rewards; None where it gave none.
        """
        seconds = math.fsum(call.seconds for call in calls)
        self._update_last_turn(calls=list(calls), reward=reward, tool_seconds=seconds)

    async def listen(self) -> str | None:
        """The user's next message; None where the user ends the talk. Raises NoCompletionError."""
        shown = visible(self.conversation, opened=self.opened)
        user_message = await self.policy.claim.run(self.user.speak(shown))
        self.heard += 1
        return user_message

    def blame(self, message: str) -> None:
        """Record what the policy did wrong in its last turn."""
        self._update_last_turn(error=RolloutError(kind="model", message=message))

    async def _call_all(self, wanted: Sequence[WantedCall]) -> list[ToolCall]:
        calls = [asyncio.create_task(self.tools.call(call)) for call in wanted]
        try:
            return list(await asyncio.gather(*calls))
        finally:  # one that went on would hold a session of an episode that is over
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    def _take(self, generation: Generation, sampled: Sampled) -> Turn:
        request, response, reason = self.trace.respond(
            generation, known=self.policy.serving.known, routed=self.policy.routed
        )
        turn = Turn(
            request=request,
            response=response,
            stop_reason=reason,
            text=self.chat.decode(generation.output_ids),
            queue_seconds=sampled.queue_seconds,
            generate_seconds=sampled.generate_seconds,
        )
        self.turns.append(turn)
        self.history.append(self.generated(turn))
        tracing.ended(
            "sample",
            seconds=sampled.queue_seconds + sampled.generate_seconds,
            **{
                "rl.tokens": response.end - response.start,
                "rl.queue_seconds": sampled.queue_seconds,
                "rl.stop_reason": reason.value,
            },
        )
        return turn

    def _update_last_turn(self, **changes: object) -> None:
        self.turns[-1] = self.turns[-1].model_copy(update=changes)
