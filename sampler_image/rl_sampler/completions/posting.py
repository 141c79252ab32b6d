"""Requests in JSON to a server that the manifest names, and what its answers mean."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from rl_sampler.completions.errors import EndpointDownError, EndpointRefusedError

CONNECT_SECONDS = 10.0
MESSAGE_CHARACTERS = 300
MAX_REPLY_BYTES = 8 << 20
NO_ACCESS = (401, 403, 404)
BUSY = (408, 409, 425, 429)
SERVER_ERROR = 500
OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """Posts requests to a server."""

    name: str
    """Of the server, with its URL, for messages."""
    settings: str
    """What to check in the manifest where it denies access, e.g. ``url and token``."""
    seconds: float
    """Longest wait for a reply."""
    token_file: Path | None
    """The bearer token; None: none is sent."""
    session: aiohttp.ClientSession

    async def post(self, url: str, body: Mapping[str, Any]) -> bytes:
        """The body of the reply, of at most ``MAX_REPLY_BYTES``.

        Raises:
            EndpointDownError: no reply in time or one that is too long, no connection, no access,
                or a server error.
            EndpointRefusedError: the server refuses this request.
        """
        status, reply = await self._reply(url, body)
        if status in NO_ACCESS:
            raise EndpointDownError(f"{self.name} answers {status}: check the {self.settings}")
        if status in BUSY or status >= SERVER_ERROR:
            raise EndpointDownError(f"{self.name} answers {status}")
        if status != OK:
            reason = " ".join(reply.decode(errors="replace").split())[:MESSAGE_CHARACTERS]
            message = f"{self.name} answers {status}: {reason}"
            raise EndpointRefusedError(message, reason=f"{status}: {reason}")
        return reply

    async def _reply(self, url: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        limit = aiohttp.ClientTimeout(total=self.seconds, connect=CONNECT_SECONDS)
        try:
            async with self.session.post(
                url, json=body, headers=self._headers(), timeout=limit
            ) as response:
                await response.content.readexactly(MAX_REPLY_BYTES + 1)
        except asyncio.IncompleteReadError as ended:
            return response.status, ended.partial
        except TimeoutError as error:
            raise EndpointDownError(
                f"{self.name} did not answer within {self.seconds:g} s"
            ) from error
        except aiohttp.ClientConnectorError as error:
            raise EndpointDownError(f"{self.name} cannot be reached") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EndpointDownError(f"{self.name} broke off its reply") from error
        raise EndpointDownError(f"{self.name} answered with more than {MAX_REPLY_BYTES >> 20} MiB")

    def _headers(self) -> dict[str, str]:
        if self.token_file is None:
            return {}
        try:
            # Read for each request: the kubelet updates the file when the Secret changes.
            token = self.token_file.read_text().strip()
        except OSError as error:
            raise EndpointDownError(
                f"the token for {self.name} cannot be read: check its tokenSecretRef"
            ) from error
        return {"Authorization": f"Bearer {token}"}
