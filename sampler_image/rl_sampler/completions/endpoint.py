"""A model on an OpenAI-compatible server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from pydantic import BaseModel, ConfigDict, ValidationError

from rl_contracts.spec.agent.endpoints import Completions, Endpoint
from rl_sampler.completions.errors import EndpointDownError, EndpointRefusedError

CONNECT_SECONDS = 10.0
MESSAGE_CHARACTERS = 300
NO_ACCESS = (401, 403, 404)
BUSY = (408, 409, 425, 429)
SERVER_ERROR = 500
OK = 200

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
            EndpointDownError: no reply in time, no connection, no access, or a server error.
            EndpointRefusedError: the server refuses this request, or its reply is no chat
                completion.
        """
        status, body = await self._post(messages)
        if status in NO_ACCESS:
            raise EndpointDownError(
                f"{self.name} answers {status}: check the endpoint's url, model and token"
            )
        if status in BUSY or status >= SERVER_ERROR:
            raise EndpointDownError(f"{self.name} answers {status}")
        if status != OK:
            reason = " ".join(body.decode(errors="replace").split())[:MESSAGE_CHARACTERS]
            raise EndpointRefusedError(f"{self.name} answers {status}: {reason}")
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

    async def _post(self, messages: Messages) -> tuple[int, bytes]:
        limit = aiohttp.ClientTimeout(total=self.seconds, connect=CONNECT_SECONDS)
        url = f"{self.endpoint.url.rstrip('/')}/chat/completions"
        try:
            async with self.session.post(
                url, json=self._body(messages), headers=self._headers(), timeout=limit
            ) as response:
                return response.status, await response.read()
        except TimeoutError as error:
            raise EndpointDownError(
                f"{self.name} did not answer within {self.seconds:g} s"
            ) from error
        except aiohttp.ClientConnectorError as error:
            raise EndpointDownError(f"{self.name} cannot be reached") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EndpointDownError(f"{self.name} broke off its reply") from error

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

    def _headers(self) -> dict[str, str]:
        if self.endpoint.token_secret_ref is None:
            return {}
        try:
            # Read for each request: the kubelet updates the file when the Secret changes.
            token = self.token_file.read_text().strip()
        except OSError as error:
            raise EndpointDownError(
                f"the token for {self.name} cannot be read: check its tokenSecretRef"
            ) from error
        return {"Authorization": f"Bearer {token}"}
