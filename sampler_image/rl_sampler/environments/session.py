"""An episode's session with an OpenEnv server: one WebSocket, one environment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Self

import aiohttp

from rl_sampler.environments import protocol
from rl_sampler.environments.protocol import (
    EnvironmentBusyError,
    EnvironmentDownError,
    EnvironmentLostError,
    EnvironmentUnreachableError,
    Seen,
)

MAX_MESSAGE_BYTES = 8 << 20
CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 2.0
ENDED = None
"""Stands behind the last message of a connection."""


class Session:
    """A connection, with its environment at the other end; every wait has a deadline.

    A task of its own receives: a server pings its clients, and who does not read, because the
    policy is writing, sends no pong and is cut off.
    """

    def __init__(
        self, http: aiohttp.ClientSession, url: str, *, headers: Mapping[str, str], seconds: float
    ) -> None:
        """Prepare a session; ``open`` connects.

        Args:
            http: never leads to a node's credentials.
            url: of the server.
            headers: of the request that connects.
            seconds: longest wait for an answer.
        """
        self._http, self.url = http, url
        self._headers, self.seconds = headers, seconds
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reader: asyncio.Task[None] | None = None
        self._received: asyncio.Queue[str | None] = asyncio.Queue(maxsize=1)
        self.slot: asyncio.Semaphore | None = None
        """Of the process, held until the session is left; None: not held yet."""

    async def __aenter__(self) -> Self:
        """Nothing is connected yet."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the session, in about ``CLOSE_SECONDS`` at most."""
        try:
            await self.close()
        finally:
            if self.slot is not None:
                self.slot.release()

    async def open(self) -> None:
        """Connect; raises EnvironmentUnreachableError."""
        try:
            async with asyncio.timeout(min(self.seconds, CONNECT_SECONDS)):
                self._socket = await self._http.ws_connect(
                    f"{self.url.rstrip('/')}/ws",
                    headers=self._headers,
                    max_msg_size=MAX_MESSAGE_BYTES,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
                )
        except aiohttp.WSServerHandshakeError as error:
            raise self._unreachable(f"answers {error.status} to a WebSocket") from error
        except TimeoutError as error:
            raise self._unreachable("accepted no connection in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._unreachable(f"cannot be reached: {reason(error)}") from error
        self._received = asyncio.Queue(maxsize=1)
        self._reader = asyncio.create_task(self._receive(self._socket), name="environment")

    async def reset(self, arguments: Mapping[str, Any]) -> Seen:
        """Begin the episode.

        Raises:
            EnvironmentBusyError: the server has no room for the session.
            EnvironmentDownError: no answer in time, or an error.
            ActionRefusedError: the arguments are not valid.
        """
        return protocol.seen(await self._ask("reset", dict(arguments)))

    async def step(self, action: Mapping[str, Any]) -> Seen:
        """Act; raises ActionRefusedError, which changes nothing, and EnvironmentDownError."""
        return protocol.seen(await self._ask("step", dict(action)))

    async def state(self) -> dict[str, Any]:
        """The environment's own state; raises EnvironmentDownError."""
        state: dict[str, Any] = await self._ask("state")
        return state

    async def close(self) -> None:
        """End the environment's episode and the connection; waits a short time at most."""
        socket, self._socket = self._socket, None
        if socket is not None:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await socket.send_str(protocol.request("close"))
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})
        if socket is not None:
            await socket.close()

    async def _ask(self, kind: Literal["reset", "step", "state"], data: Any = None) -> Any:
        expected: Literal["observation", "state"] = "state" if kind == "state" else "observation"
        try:
            answer = await self._answer(kind, data)
            return protocol.read(answer, expected=expected)
        except (EnvironmentBusyError, EnvironmentDownError):
            await self.close()  # a late answer would be taken for that of the next request
            raise

    async def _answer(self, kind: Literal["reset", "step", "state"], data: Any) -> str:
        if self._socket is None:
            raise self._down("has no open session")
        early = not self._received.empty()
        if not early:
            with contextlib.suppress(aiohttp.ClientError, OSError):  # `_receive` says how it ended
                await self._socket.send_str(protocol.request(kind, data))
        try:
            async with asyncio.timeout(self.seconds):
                answer = await self._received.get()
        except TimeoutError as error:
            raise self._down(f"did not answer {kind} within {self.seconds:g} s") from error
        if answer is ENDED:
            raise EnvironmentLostError(
                f"the environment at {self.url} closed the connection before it answered {kind}"
            )
        if early and not protocol.is_error(answer):
            raise self._down("sent an answer that nothing had asked for")
        return answer

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.TEXT:
                    break
                await self._received.put(message.data)
        await self._received.put(ENDED)

    def _down(self, what: str) -> EnvironmentDownError:
        return EnvironmentDownError(f"the environment at {self.url} {what}")

    def _unreachable(self, what: str) -> EnvironmentUnreachableError:
        return EnvironmentUnreachableError(f"the environment at {self.url} {what}")


def reason(error: BaseException) -> str:
    """Why a server could not be reached, in one line."""
    return " ".join(str(error).split())[: protocol.MESSAGE_CHARACTERS] or type(error).__name__
