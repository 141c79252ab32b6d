"""A model on an OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import BaseModel, ConfigDict, ValidationError

from rl_contracts.spec.agent.endpoints import Completions, Endpoint
from rl_sampler.completions.errors import EndpointRefusedError
from rl_sampler.completions.posting import Posting

Messages = Sequence[Mapping[str, str]]


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _ReplyMessage(_Lenient):
    content: str | None = None


class _Choice(_Lenient):
    message: _ReplyMessage


class _Usage(_Lenient):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Reply(_Lenient):
    choices: list[_Choice]
    usage: _Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A model's reply."""

    text: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Server:
    """Sends requests to an endpoint."""

    endpoint: Endpoint
    options: Completions
    seconds: float
    """Longest wait for a reply."""
    token_file: Path
    session: aiohttp.ClientSession

    @property
    def name(self) -> str:
        """Model and URL, for messages."""
        return f"{self.endpoint.model} at {self.endpoint.url}"

    async def complete(self, messages: Messages) -> Completion:
        """Request the next message of a conversation.

        Raises:
            EndpointDownError: no reply in time or one that is too long, no connection, no access,
                or a server error.
            EndpointRefusedError: the server refuses this request, or its reply is no chat
                completion.
        """
        posting = Posting(
            name=self.name,
            settings="endpoint's url, model and token",
            seconds=self.seconds,
            token_file=self.token_file if self.endpoint.token_secret_ref is not None else None,
            session=self.session,
        )
        url = f"{self.endpoint.url.rstrip('/')}/chat/completions"
        body = await posting.post(url, self._body(messages))
        try:
            reply = _Reply.model_validate_json(body)
            (first, *_) = reply.choices
        except (ValidationError, ValueError) as error:
            raise EndpointRefusedError(
                f"{self.name} answered with something other than a chat completion"
            ) from error
        usage = reply.usage or _Usage()
        return Completion(
            text=first.message.content or "",
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
        )

    def _body(self, messages: Messages) -> dict[str, Any]:
        options = {
            "max_tokens": self.options.max_tokens,
            "temperature": self.options.temperature,
        }
        return {
            "model": self.endpoint.model,
            "messages": [dict(message) for message in messages],
            **{key: value for key, value in options.items() if value is not None},
        }
