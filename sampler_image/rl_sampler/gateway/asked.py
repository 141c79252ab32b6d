"""A request for responses, and its answer, independent of the API that it came by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rl_contracts.errors import RLError
from rl_sampler.tools.tool import Tool

Role = Literal["system", "user", "assistant", "tool"]
DIGEST_BYTES = 16


class RefusedRequestError(RLError):
    """A request that cannot be answered; each API has its own form of it."""

    def __init__(
        self, message: str, *, status: int = 400, parameter: str | None = None, code: str = ""
    ) -> None:
        """Make the error.

        Args:
            message: what is wrong, and what to do.
            status: HTTP status of the answer.
            parameter: the field of the request that is wrong.
            code: OpenAI's name of the error, where it has one.
        """
        super().__init__(message)
        self.status, self.parameter, self.code = status, parameter, code


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the policy."""

    id: str
    name: str
    arguments: str
    """JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a conversation."""

    role: Role
    text: str
    calls: tuple[Call, ...] = ()
    """Only of the role ``assistant``."""
    call_id: str = ""
    """Of the role ``tool``: the call whose result this is."""
    tool: str = ""
    """Of the role ``tool``: the tool that was called."""

    def content(self) -> list[object]:
        """What the chat template shows of it. White space around a response does not count.

        Ids of calls are left out: the template shows the policy none of them, and some programs
        replace them.
        """
        if self.role == "assistant":
            calls = [[call.name, _canonical(call.arguments)] for call in self.calls]
            return [self.role, self.text.strip(), calls]
        return [self.role, self.tool, self.text]


def _canonical(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, parsed."""

    messages: tuple[Message, ...]
    """At least one; the last is not the policy's."""
    tools: tuple[Tool, ...] = ()
    calls_allowed: bool = True
    """Tool calls are parsed; otherwise a response is text alone."""
    parallel: bool = True
    """More than the first tool call of a response is answered."""
    choices: int = 1
    most_tokens: int | None = None
    """Of each response; None: the job's limit."""
    stops: tuple[str, ...] = ()
    stream: bool = False
    logprobs: bool = False
    stream_usage: bool = False
    """The last event of a stream has the number of tokens."""
    model: str = ""
    """As the request names it; the answer repeats it."""
    ignored: tuple[str, ...] = ()
    """Fields that have no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A response, as the program is given it."""

    text: str
    """Without tool calls and the stop text."""
    calls: tuple[Call, ...] = ()
    finish: Literal["stop", "length", "tool_calls"] = "stop"
    stop: str | None = None
    """The stop text that ended it."""
    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    """Natural logarithms, for each of ``tokens``, at the job's temperature."""
    pieces: Sequence[str] = ()
    """Text of each token, where the request asked for log-probabilities."""

    @property
    def message(self) -> Message:
        """The message that a later request repeats."""
        return Message(role="assistant", text=self.text, calls=self.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a request."""

    id: str
    created: int
    """Seconds since the epoch."""
    prompt_tokens: int
    choices: list[Choice] = field(default_factory=list)

    @property
    def output_tokens(self) -> int:
        """Tokens of all choices."""
        return sum(len(choice.tokens) for choice in self.choices)


def chain(tools: Iterable[Tool], messages: Iterable[Message]) -> list[bytes]:
    """Digests of a conversation: of its tools alone, then also of its first messages.

    Returns:
        One more than there are messages; equal digests mean equal beginnings.
    """
    shown = [tool.to_chat() for tool in tools]
    digests = [_digest(b"", shown)]
    for message in messages:
        digests.append(_digest(digests[-1], message.content()))
    return digests


def following(digest: bytes, message: Message) -> bytes:
    """The digest of a conversation with another message behind it."""
    return _digest(digest, message.content())


def _digest(before: bytes, content: object) -> bytes:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False).encode(errors="surrogatepass")
    return hashlib.blake2b(before + text, digest_size=DIGEST_BYTES).digest()
