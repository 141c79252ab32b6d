"""A session: one member of a group, whose program asks for responses with a key of its own."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rl_contracts.documents.rollout import StopReason
from rl_contracts.spec.agent.tools import ToolCallFormat
from rl_sampler.agents.chat import Chat, Chats
from rl_sampler.agents.policy import Policy, Sampled
from rl_sampler.agents.prompt import PromptError
from rl_sampler.agents.trace import SampledResponse, sampled_response
from rl_sampler.engine.errors import EngineError, EngineProtocolError
from rl_sampler.engine.protocol import Generation
from rl_sampler.gateway.asked import Asked, Choice, Message, RefusedRequestError, Reply
from rl_sampler.gateway.calls import calls_in, grows, marks_of
from rl_sampler.gateway.past import Past
from rl_sampler.gateway.posted import fitted, posted_in
from rl_sampler.gateway.tree import Place, Tree
from rl_sampler.gateway.visible import GrowingText
from rl_sampler.tasks.claims import EpisodeEndedError, UnusableMemberError

MOST_AT_ONCE = 64
"""Requests of a session that are worked on at the same time."""
MOST_TOKENS = 1_000_000
"""Of all sequences of a session together: a rollout is one document of the store."""
BYTES_PER_TOKEN = 64
"""Of a request, for each token of ``maxContextTokens``: text has far fewer. A longer request could
not fit, and while it was tokenized the agent could renew no lease."""
SMALL_BYTES = 1 << 16
"""Requests of this size are read in any case."""

MOST_IGNORED = 256
"""Names of fields that had no effect, of a session: a rollout lists them."""

Emit = Callable[[int, str], Awaitable[None]]
"""Takes a choice's number and the next part of its text."""


class TornStreamError(EngineProtocolError):
    """A stream's text was sent, and then the request had to be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A request that can be answered."""

    asked: Asked
    chat: Chat
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A response that is not in the tree yet."""

    response: SampledResponse
    text: str
    """All of it, decoded."""
    choice: Choice
    """As the program reads it."""


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """What a program may ask, and what became of it."""

    policy: Policy
    chats: Chats
    form: ToolCallFormat
    most_responses: int
    streams: bool
    """Responses are given out while they grow. Otherwise an update of the weights may repeat a
    request, so a stream's text comes at its end."""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    tree: Tree = field(default_factory=Tree)
    past: Past = field(default_factory=Past)
    """Responses of an earlier attempt."""
    replayed_tokens: int = 0
    """Tokens of those responses that are in the tree."""
    on_response: Callable[[], None] | None = None
    """Called when a response that was sampled now is in the tree: one that is given again has been
    saved with others behind it, which a save without them would hide."""
    conversation: tuple[Message, ...] = ()
    """Messages of the request whose response ended last."""
    reward: float | None = None
    """What the program posted, in [0, 1]."""
    metrics: dict[str, float] = field(default_factory=dict)
    ignored: set[str] = field(default_factory=set)
    """Fields of requests that had no effect, MOST_IGNORED of them."""
    too_long: str = ""
    """What was refused as too long for a response before there was one; empty: nothing."""
    failure: Exception | None = None
    """Why the session cannot go on: never the policy's doing."""
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    _at_once: int = 0
    _responses: int = 0
    """That admitted requests may add."""
    _tokens: int = 0
    """The same, in tokens of the sequences."""

    @contextmanager
    def admitted(self, asked: Asked) -> Iterator[Placed]:
        """Place a request, and count what it may add until the block ends.

        Raises:
            RefusedRequestError: as ``place``, or there are too many requests at once.
        """
        if self._at_once >= MOST_AT_ONCE:
            raise RefusedRequestError(
                f"this key has {MOST_AT_ONCE} requests at once: wait for one of them", status=429
            )
        placed = self.place(asked)
        tokens = self._tokens_of(placed)
        self._at_once += 1
        self._responses += asked.choices
        self._tokens += tokens
        try:
            yield placed
        finally:
            self._at_once -= 1
            self._responses -= asked.choices
            self._tokens -= tokens

    def check_size(self, size: int, *, answered: bool) -> None:
        """Refuse a request of so many bytes that it cannot fit; raises RefusedRequestError.

        ``answered``: by a response of the policy.
        """
        most = max(SMALL_BYTES, BYTES_PER_TOKEN * self.policy.sampling.max_context_tokens)
        if size <= most:
            return
        problem = (
            f"the request has {size} bytes, more than {most} (maxContextTokens x {BYTES_PER_TOKEN})"
        )
        if answered:
            raise self._too_long(f"{problem}: it leaves no room for a response")
        raise RefusedRequestError(problem)

    def place(self, asked: Asked) -> Placed:
        """Check a request and find what it continues; raises RefusedRequestError."""
        self._check_bounds(asked)
        try:
            chat = self.chats.of(asked.tools, several_turns=True)
        except PromptError as error:
            raise RefusedRequestError(str(error), parameter="tools") from error
        place = self.tree.place(asked, chat)
        if self.policy.room(len(place.context)) < 1:
            raise self._too_long(
                f"the messages have {len(place.context)} tokens, which leaves no room for a "
                "response within maxContextTokens"
            )
        placed = Placed(asked=asked, chat=chat, place=place)
        tokens = self.tree.size + self._tokens + self._tokens_of(placed)
        if tokens > MOST_TOKENS:
            raise RefusedRequestError(
                f"the session's sequences may have {tokens} tokens with this request, more than "
                f"{MOST_TOKENS}: end the program, or keep to one conversation",
                code="session_limit",
            )
        new = sorted(set(asked.ignored) - self.ignored)
        self.ignored.update(new[: MOST_IGNORED - len(self.ignored)])
        return placed

    def count(self, asked: Asked) -> int:
        """Tokens of a request's prompt; raises RefusedRequestError."""
        try:
            chat = self.chats.of(asked.tools, several_turns=True)
        except PromptError as error:
            raise RefusedRequestError(str(error), parameter="tools") from error
        return len(Tree().place(asked, chat).context)

    async def answer(self, placed: Placed, emit: Emit | None = None) -> Reply:
        """Sample the responses to a request.

        Args:
            placed: the request.
            emit: called with the text of each choice while it grows; all of it was given out when
                the reply is returned.

        Raises:
            RefusedRequestError: the session has failed or has ended.
        """
        try:
            return await self._answer(placed, emit)
        except (EngineError, UnusableMemberError) as error:
            self.fail(error)
            raise RefusedRequestError(str(error), status=503) from error
        except EpisodeEndedError as error:
            raise RefusedRequestError(f"the session is over: {error}", status=503) from error

    def fail(self, error: Exception) -> None:
        """End the session because of an outage; the first reason is kept."""
        self.failure = self.failure or error
        self.failed.set()

    def report(self, body: Mapping[str, Any]) -> None:
        """Take the reward and metrics that a program posts; later values replace earlier ones.

        Raises:
            RefusedRequestError: names the value that cannot be used; nothing was taken.
        """
        posted = posted_in(body, earlier=self.metrics)
        self.reward = self.reward if posted.reward is None else posted.reward
        self.metrics |= posted.metrics

    def judged(self, reward: float, metrics: Mapping[str, float]) -> str:
        """Take what the tests of a task say, before all that the program posted.

        Args:
            reward: in [0, 1].
            metrics: finite numbers under any names.

        Returns:
            Which metrics have another name or are left out; empty where none.
        """
        self.reward = reward
        self.metrics, note = fitted(metrics, earlier=self.metrics)
        return note

    def _check_bounds(self, asked: Asked) -> None:
        if self.failure is not None:
            raise RefusedRequestError(f"the session has failed: {self.failure}", status=503)
        if len(self.tree) + self._responses + asked.choices > self.most_responses:
            raise RefusedRequestError(
                f"the session has {len(self.tree)} responses, and agent.program.maxResponses is "
                f"{self.most_responses}",
                code="session_limit",
            )

    def _too_long(self, message: str) -> RefusedRequestError:
        if not len(self.tree):
            self.too_long = self.too_long or message
        return RefusedRequestError(message, parameter="messages", code="context_length_exceeded")

    def _tokens_of(self, placed: Placed) -> int:
        """Most tokens that a request adds to the session's sequences, where each is a branch."""
        longest = self._longest(placed.asked)
        return placed.asked.choices * (len(placed.place.context) + longest)

    def _longest(self, asked: Asked) -> int:
        """Most tokens of a response."""
        most = self.policy.sampling.max_tokens_per_turn
        return min(asked.most_tokens or most, most)

    async def _answer(self, placed: Placed, emit: Emit | None) -> Reply:
        asked, context = placed.asked, placed.place.context
        growing = [
            GrowingText(placed.chat.decode, marks_of(asked, self.form))
            for _ in range(asked.choices)
        ]

        async def progress(number: int, tokens: list[int]) -> None:
            part = growing[number].grow(tokens)
            if part and emit is not None:
                await emit(number, part)

        if (stored := self._stored(placed)) is not None:
            # Its oldest token decides how old it is, whoever samples the others.
            with self._keeping(min(span.step for span in stored.spans)):
                answered = await self._answered(placed, stored, stop=None)
            choice = self._add(placed, answered)
            self.replayed_tokens += len(stored.tokens)
            if emit is not None and (rest := growing[0].finish(choice.text)):
                await emit(0, rest)
            return _reply(placed, [choice])
        streamed = emit is not None and self.streams and grows(asked, self.form)
        sampled = await self.policy.sample(
            context,
            members=asked.choices,
            limit=self._longest(asked),
            stops=asked.stops,
            progress=progress if streamed else None,
            known=placed.place.routed,
            keep=False,
        )
        for sent, generation in zip(growing, sampled.generations, strict=True):
            if sent.sent and sent.length != len(generation.output_ids):
                raise TornStreamError("a request was repeated after a part of it was streamed")
        with self._keeping(sampled.step):
            answers = [await self._sampled(placed, each) for each in sampled.generations]
        # At once: of a program that leaves while the calls of one are parsed, none is data.
        choices = [self._add_sampled(placed, each, sampled) for each in answers]
        for number, choice in enumerate(choices):
            if emit is not None and (rest := growing[number].finish(choice.text)):
                await emit(number, rest)
        return _reply(placed, choices)

    def _stored(self, placed: Placed) -> SampledResponse | None:
        """An earlier attempt's response to a request of one choice that names no stop texts."""
        asked = placed.asked
        if asked.choices != 1 or asked.stops:
            return None
        return self.past.take(placed.place.context, longest=self._longest(asked))

    @contextmanager
    def _keeping(self, step: int) -> Iterator[None]:
        """Count tokens of a policy's step while their calls are read, and keep them behind that.

        Those of a program that leaves meanwhile are dropped, and count no more.
        """
        claim, member = self.policy.claim, self.policy.member
        with claim.sampling(step, member=member):
            yield
            claim.keep_tokens(step, member=member)

    async def _sampled(self, placed: Placed, generation: Generation) -> Answered:
        place = placed.place
        routed = (place.routed, len(place.context)) if self.policy.routed else None
        response = sampled_response(generation, known=self.policy.serving.known, routed=routed)
        matched = generation.meta_info.finish_reason.matched
        stop = matched if isinstance(matched, str) and placed.asked.stops else None
        return await self._answered(placed, response, stop=stop)

    async def _answered(
        self, placed: Placed, response: SampledResponse, *, stop: str | None
    ) -> Answered:
        """Read the calls of a response."""
        asked, chat = placed.asked, placed.chat
        whole = chat.decode(response.tokens)
        cut = response.reason is StopReason.LENGTH
        response_text = whole.split(stop)[0] if stop else whole
        text, calls = await calls_in(
            response_text,
            asked,
            form=self.form,
            policy=self.policy,
            opened=chat.opens_thinking(placed.place.context),
        )
        choice = Choice(
            text=text,
            calls=calls,
            finish="tool_calls" if calls else "length" if cut else "stop",
            stop=stop,
            tokens=response.tokens,
            logprobs=response.logprobs,
            pieces=[chat.decode([token]) for token in response.tokens] if asked.logprobs else (),
        )
        return Answered(response=response, text=whole, choice=choice)

    def _add_sampled(self, placed: Placed, answered: Answered, sampled: Sampled) -> Choice:
        choice = self._add(
            placed,
            answered,
            queue_seconds=sampled.queue_seconds,
            generate_seconds=sampled.generate_seconds,
        )
        if self.on_response is not None:
            self.on_response()
        return choice

    def _add(
        self,
        placed: Placed,
        answered: Answered,
        *,
        queue_seconds: float = 0.0,
        generate_seconds: float = 0.0,
    ) -> Choice:
        """Put a response into the tree; returns it as the program reads it."""
        self.tree.add(
            placed.place,
            answered.choice.message,
            answered.response,
            text=answered.text,
            queue_seconds=queue_seconds,
            generate_seconds=generate_seconds,
        )
        self.conversation = placed.asked.messages
        return answered.choice


def _reply(placed: Placed, choices: list[Choice]) -> Reply:
    return Reply(
        id=secrets.token_hex(12),
        created=int(time.time()),
        prompt_tokens=len(placed.place.context),
        choices=choices,
    )
