"""The agent's client of what runs others' code: the container ``code``, or pods of programs."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from rl_contracts import env
from rl_contracts.env import EnvironmentVariableError
from rl_contracts.errors import RLError
from rl_sampler.code.replies import Answer, Reply
from rl_sampler.code.wire import MAX_LINE_BYTES, MessageTooLongError, line
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.counters import Counters

START_SECONDS = 60.0
"""How long to wait for the container to start or restart."""
PAUSE_SECONDS = 0.2

R = TypeVar("R", bound=Reply)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class CodeContainerError(RLError):
    """What runs the code does not listen, ended during a call, or answered with nonsense."""


class Channel:
    """The connection of one call."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, name: str
    ) -> None:
        self.reader, self.writer, self._name = reader, writer, name
        self.failed = ""
        """Outcome of a call whose answer is a failure, or none of this call."""

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message.

        Raises:
            CodeContainerError: the container has ended, or the message is too long.
        """
        try:
            self.writer.write(line(message))
            await self.writer.drain()
        except MessageTooLongError as error:
            self.failed = "failed"
            raise CodeContainerError(f"{self._name} was not asked: {error}") from error
        except OSError as error:
            raise CodeContainerError(f"{self._name} ended during the call") from error

    async def receive(self, model: type[R]) -> R:
        """The next message.

        Raises:
            CodeContainerError: the container has ended, or the message is not of this model.
        """
        try:
            received = await self.reader.readline()
        except (OSError, ValueError) as error:  # ValueError: more than MAX_LINE_BYTES
            raise CodeContainerError(f"{self._name} does not answer: {error}") from error
        if not received.endswith(b"\n"):
            raise CodeContainerError(f"{self._name} ended during the call")
        try:
            reply = model.model_validate_json(received)
        except ValidationError as error:
            self.failed = "failed"
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise CodeContainerError(
                f"{self._name} gave an answer that cannot be used: {place} {first['msg']}"
            ) from error
        if isinstance(reply, Answer) and reply.failure is not None:
            self.failed = "late" if reply.failure.kind == "time" else "failed"
        return reply


class CodeCalls:
    """Makes calls, over a connection for each."""

    name: str
    """Of what answers, in messages."""

    def __init__(self, *, counters: Counters, start_seconds: float = START_SECONDS) -> None:
        """Make a client.

        Args:
            counters: count calls by outcome; not those that the agent ends.
            start_seconds: how long to wait for a server that does not listen.
        """
        self._counters, self._start_seconds = counters, start_seconds

    async def open(self) -> Streams:
        """A new connection; raises OSError, of which TimeoutError is one."""
        raise NotImplementedError

    def for_image(self, image: str) -> CodeCalls:
        """What runs tasks that name this image; the same for all where there is one image."""
        return self

    async def ask(self, request: dict[str, Any], model: type[R], *, seconds: float) -> R:
        """Make a call with a single answer.

        Raises:
            CodeContainerError: the container gave no usable answer.
            TimeoutError: none within ``seconds`` after it listened.
        """
        async with self.call(request, seconds=seconds) as channel:
            return await channel.receive(model)

    @asynccontextmanager
    async def call(
        self, request: dict[str, Any], *, seconds: float | None = None
    ) -> AsyncIterator[Channel]:
        """Begin a call; leaving the context ends it on both sides.

        Raises:
            CodeContainerError: nothing listens, although there was time to start.
            TimeoutError: the context lasted longer than ``seconds``.
        """
        call = str(request["call"])
        try:
            channel = Channel(*await self._connected(), name=self.name)
        except CodeContainerError:
            self._count(call, "lost")
            raise
        try:
            async with asyncio.timeout(seconds):
                await channel.send(request)
                yield channel
        except CodeContainerError:
            self._count(call, channel.failed or "lost")
            raise
        except TimeoutError:
            self._count(call, "late")
            raise
        else:
            self._count(call, channel.failed or "answered")
        finally:
            channel.writer.close()

    def _count(self, call: str, outcome: str) -> None:
        self._counters.code_calls[call, outcome] += 1

    def _pauses(self) -> Iterator[float]:
        """Seconds before each further try to connect, where it does not listen."""
        return itertools.repeat(PAUSE_SECONDS)

    async def _connected(self) -> Streams:
        until, pauses = time.monotonic() + self._start_seconds, self._pauses()
        while True:
            try:
                return await self.open()
            except OSError as error:
                if time.monotonic() > until:
                    raise CodeContainerError(
                        f"{self.name} does not listen ({error}): its log says why"
                    ) from error
            await asyncio.sleep(next(pauses))


class CodeContainer(CodeCalls):
    """Calls what runs in the container beside this one, without the agent's credentials."""

    name = "the container `code`"

    def __init__(
        self, socket: Path, *, counters: Counters, start_seconds: float = START_SECONDS
    ) -> None:
        """Make a client of the server at a Unix socket; the rest is as for any calls."""
        super().__init__(counters=counters, start_seconds=start_seconds)
        self._socket = socket

    async def open(self) -> Streams:
        """A new connection."""
        return await asyncio.open_unix_connection(self._socket, limit=MAX_LINE_BYTES)


def code_container_of(assignment: Assignment, *, counters: Counters) -> CodeContainer | None:
    """The pod's container ``code``; None where the manifest needs none.

    Raises:
        EnvironmentVariableError: the manifest needs it, but the operator set no socket.
    """
    if not assignment.spec.needs_code_container:
        return None
    if assignment.env.code_socket is None:
        raise EnvironmentVariableError(f"environment variable {env.CODE_SOCKET} is not set")
    return CodeContainer(assignment.env.code_socket, counters=counters)
