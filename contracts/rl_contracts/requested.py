"""Episodes that people request of a sampler: the protocol of ``kubectl rl chat`` and ``replay``.

The agent listens on its pod's loopback alone. Who may forward a port of the pod (``create`` on
``pods/portforward``) reaches it, and nobody else. Such an episode is played with the job's own
agent, tools and scorers by the policy that is served now. It is never stored, and never trained.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from rl_contracts.documents.rollout import RewardPart, RolloutError, StopReason, Turn, VersionSpan

PATH = "/v1/episodes"
EPISODE_SECONDS = 600.0
"""Longest time of one episode, the wait for the engine included."""
AT_ONCE = 2
"""Episodes that one sampler plays for people at the same time; more are refused."""
REQUEST_BYTES = 1 << 20
STREAM = "application/x-ndjson"
"""A request that accepts it is answered with events, one JSON object a line, as the episode is
played."""


class ChatMessage(BaseModel):
    """A message of a conversation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Annotated[str, Field(min_length=1, max_length=40)]
    content: str


class EpisodeRequest(BaseModel):
    """Asks for one episode: of a stored task's prompt, or of a conversation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: Annotated[str, Field(max_length=300)] = ""
    """Id of a stored task, whose prompt is sampled and whose scorers judge; empty: ``messages``."""
    messages: Annotated[tuple[ChatMessage, ...], Field(max_length=1000)] = ()
    """Up to the policy's turn; scored by nobody, because no reference answer is known."""
    temperature: Annotated[float, Field(ge=0, le=10)] | None = None
    """0: the most probable tokens. None: the task's, or ``agent.sampling.temperature``."""
    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Of one response; never more than ``agent.sampling.maxTokensPerTurn``, its default."""

    @model_validator(mode="after")
    def _names_one_prompt(self) -> Self:
        if bool(self.task) == bool(self.messages):
            raise ValueError("name either a task or messages")
        return self


class EpisodeAnswer(BaseModel):
    """How the episode went."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    text: str
    """The last response."""
    turns: list[Turn]
    messages: list[ChatMessage]
    """What was said behind the prompt, results of tools included: a next request may go on from
    there."""
    stop_reason: StopReason
    spans: list[VersionSpan]
    """Policy versions by token."""
    temperature: float
    greedy: bool
    answer: str | None = None
    """What the job's answer schema reads in the text."""
    reward: float | None = None
    """None: it was not scored."""
    parts: list[RewardPart] = []
    not_scored: str = ""
    """Why there is no reward."""
    error: RolloutError | None = None
    """Why the episode could not go on."""

    @property
    def versions(self) -> list[int]:
        """Policy versions that sampled it, in the order of their tokens."""
        return list(dict.fromkeys(span.version for span in self.spans))

    @property
    def tokens(self) -> int:
        """Tokens that the policy generated."""
        return sum(turn.response.end - turn.response.start for turn in self.turns)


class EpisodeEvent(BaseModel):
    """Base of the events that a sampler sends while it plays an episode."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class TextEvent(EpisodeEvent):
    """More text of the response that is being sampled."""

    kind: Literal["text"] = "text"
    text: str


class AgainEvent(EpisodeEvent):
    """The response begins again: an update of the weights has ended it."""

    kind: Literal["again"] = "again"


class TurnEvent(EpisodeEvent):
    """A response and its tool calls are over, and another response follows."""

    kind: Literal["turn"] = "turn"
    turn: Turn


class EndEvent(EpisodeEvent):
    """The last event of an episode that was played."""

    kind: Literal["end"] = "end"
    answer: EpisodeAnswer


class RefusedEvent(EpisodeEvent):
    """The last event of an episode that could not go on, as the status of an answer would say."""

    kind: Literal["refused"] = "refused"
    status: int
    message: str


Event = Annotated[
    TextEvent | AgainEvent | TurnEvent | EndEvent | RefusedEvent, Field(discriminator="kind")
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
