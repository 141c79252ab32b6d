"""Reads the engine's answer to a streamed request: server-sent events that grow.

By default each event repeats the whole response, with its log-probabilities; an engine that runs
with ``--incremental-streaming-output`` sends what is new. The last event of a member has the
reason why it ended.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp

from rl_sampler.engine.errors import EngineProtocolError, EngineRefusedError

Progress = Callable[[int, list[int]], Awaitable[None]]
"""Takes a member's number and its new tokens."""
START = b"data: "
DONE = b"[DONE]"
LOGPROBS = "output_token_logprobs"
INVALID_REQUEST = 400


class Grown:
    """A member's response until now."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] = {}
        self.tokens: list[int] = []
        self._logprobs: list[Any] = []

    def add(self, event: dict[str, Any]) -> list[int]:
        """Take an event; returns the new tokens."""
        meta, sent = event["meta_info"], event["output_ids"]
        whole = int(meta["completion_tokens"])
        known = len(self.tokens)
        repeats = len(sent) == whole
        new = sent[known:] if repeats else sent
        logprobs = meta.get(LOGPROBS) or []
        self._logprobs += logprobs[known:] if repeats else logprobs
        self.tokens += new
        if len(self.tokens) != whole:
            raise EngineProtocolError(
                f"/generate streamed {len(self.tokens)} of {whole} tokens of a response"
            )
        self.answer = event | {
            "output_ids": self.tokens,
            "meta_info": meta | {LOGPROBS: self._logprobs},
        }
        return list(new)

    @property
    def ended(self) -> bool:
        """Whether this was the last event."""
        return bool(self.answer) and self.answer["meta_info"].get("finish_reason") is not None


async def read_stream(
    response: aiohttp.ClientResponse, *, members: int, progress: Progress
) -> list[dict[str, Any]]:
    """The whole answer of a streamed request, as without a stream.

    Args:
        response: with the status 200.
        members: that were asked for.
        progress: called for each event.

    Raises:
        EngineProtocolError: an event is malformed, or the stream ended early.
        EngineRefusedError: the engine refused the request.
    """
    grown = [Grown() for _ in range(members)]
    async for line in _lines(response):
        if not line.startswith(START) or line[len(START) :].strip() == DONE:
            continue
        event = json.loads(line[len(START) :])
        if "error" in event:
            message = str(event["error"].get("message", ""))
            raise EngineRefusedError(doing="sampling", status=INVALID_REQUEST, message=message)
        try:
            number = int(event.get("index", 0))
            new = grown[number].add(event)
        except (KeyError, IndexError, TypeError) as error:
            raise EngineProtocolError(f"/generate streamed an unexpected event: {error}") from error
        if new:
            await progress(number, new)
    if not all(member.ended for member in grown):
        raise EngineProtocolError("/generate ended its stream before the responses ended")
    return [member.answer for member in grown]


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length; aiohttp's own reader refuses long lines."""
    parts: list[bytes] = []
    async for chunk in response.content.iter_any():
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            yield b"".join((*parts, line))
            parts = []
        parts.append(rest)
