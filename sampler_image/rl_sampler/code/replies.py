"""What the container ``code`` may answer; anything else is the fault of the user's code."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rl_contracts.documents.rollout import StopReason
from rl_sampler.code.wire import (
    LOG_CHARACTERS,
    MESSAGE_CHARACTERS,
    REWARD_CHARACTERS,
    FailureKind,
)

Text = Annotated[str, Field(max_length=1_000_000)]
Name = Annotated[str, Field(max_length=256)]


class Reply(BaseModel):
    """A message of the container ``code``."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Failure(Reply):
    """Why a call has no result."""

    kind: FailureKind
    message: Annotated[str, Field(max_length=MESSAGE_CHARACTERS)]


class Answer(Reply):
    """The answer of a call, which may fail."""

    failure: Failure | None = None


class Started(Answer):
    """The program of an MCP server runs."""


class DescribedRefusal(Reply):
    """An entry point that cannot be used."""

    field: Name
    value: Name
    reason: Name
    message: Annotated[str, Field(max_length=4096)]
    remedy: Annotated[str, Field(max_length=4096)]


class DescribedTool(Reply):
    """A tool that a function makes."""

    name: Name
    description: Text
    parameters: dict[str, Any]
    seconds: Annotated[float, Field(gt=0, le=3600)]


class Described(Answer):
    """The user's code, once it was imported."""

    refusal: DescribedRefusal | None = None
    tools: Annotated[list[DescribedTool], Field(max_length=32)] = Field(default_factory=list)


class Scored(Answer):
    """A scorer's value."""

    value: Annotated[float, Field(ge=0, le=1)] = 0.0


class Called(Answer):
    """A tool's result."""

    text: str = ""
    failed: bool = False


class Ran(Answer):
    """How a program ended."""

    exit_code: int | None = None
    """Negative: the number of the signal that ended it; None where it was killed here."""
    late: bool = False
    """It was killed at its time limit."""
    log: Annotated[str, Field(max_length=LOG_CHARACTERS)] = ""
    seconds: Annotated[float, Field(ge=0)] = 0.0


class Judged(Ran):
    """How the tests of a Harbor task ended, and what they wrote."""

    prevented: Annotated[str, Field(max_length=MESSAGE_CHARACTERS)] = ""
    """How the program has made its tests impossible; empty: they ran."""
    reward_json: Annotated[str, Field(max_length=REWARD_CHARACTERS)] | None = None
    reward_text: Annotated[str, Field(max_length=REWARD_CHARACTERS)] | None = None


class Compared(Answer):
    """Whether two answers have the same value."""

    same: bool = False


class ShownMessage(Reply):
    """A message that the user's agent puts behind a response."""

    role: Literal["user", "tool", "system", "assistant"]
    content: Text
    name: Name | None = None
    tool_call_id: Name | None = None


class AskedCall(Reply):
    """A tool call that the user's agent makes."""

    tool: Name
    arguments: Text


class Move(Answer):
    """What the user's agent wants next, or why its episode has ended."""

    do: Literal["respond", "show", "calls", "make", "listen", "blame", "conversation"] | None = None
    limit: Annotated[int, Field(ge=1)] | None = None
    messages: Annotated[list[ShownMessage], Field(max_length=1000)] = Field(default_factory=list)
    calls: Annotated[list[AskedCall], Field(max_length=1000)] = Field(default_factory=list)
    text: Text = ""
    reason: StopReason | None = None
