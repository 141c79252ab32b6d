"""The connection of a call, seen by what answers it."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
from collections.abc import Coroutine
from typing import Any

from rl_sampler.code.wire import failure, line

logger = logging.getLogger("rl_sampler.code")

REQUEST_SECONDS = 60.0
"""For the first line of a connection."""
IDLE_SECONDS, PROBE_SECONDS, PROBES = 10, 5, 3
"""A connection whose other side has vanished ends 25 s after its last byte."""


def ignore_interrupts() -> None:
    """Have SIGINT do nothing here: a program of an episode may send it, and lose the episode.

    By a handler, so that programs that are started get the default again.
    """
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)


class Connection:
    """The connection of a call."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._received: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(self) -> None:
        """Receive messages; returns once the agent has closed the connection."""
        while (received := await self._reader.readline()).endswith(b"\n"):
            self._received.put_nowait(received)

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self._writer.write(line(message))
        await self._writer.drain()

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a question and wait for the answer."""
        await self.send(message)
        answer: dict[str, Any] = json.loads(await self._received.get())
        return answer

    async def answer(self, call: Coroutine[Any, Any, dict[str, Any]]) -> None:
        """Make a call and send its result; the agent that closes the connection cancels it."""
        work, gone = asyncio.create_task(call), asyncio.create_task(self.listen())
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, gone):
            task.cancel()
        await asyncio.wait({work, gone})
        if not work.cancelled():
            await self.send(_result_of(work))


def keep_alive(connection: socket.socket) -> None:
    """Notice a peer that vanished without a word, as a node that lost its power does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, IDLE_SECONDS),
        (socket.TCP_KEEPINTVL, PROBE_SECONDS),
        (socket.TCP_KEEPCNT, PROBES),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _result_of(work: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
    error = work.exception()
    if error is None:
        return work.result()
    logger.error("a call failed", exc_info=error)
    return failure("user", f"{type(error).__name__}: {error}")
