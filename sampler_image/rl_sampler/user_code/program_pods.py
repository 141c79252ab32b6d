"""The agent's client of the pods that run programs: a connection to their Service for each call.

Pods of single episodes are claimed: whoever connects to one that another agent has just claimed
tries again, and the Service leads elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator

from rl_sampler.code.client import START_SECONDS, CodeCalls, CodeContainerError, Streams
from rl_sampler.code.replies import Answer
from rl_sampler.code.wire import MAX_LINE_BYTES, line
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.counters import Counters
from rl_sampler.tools.tool import ToolDownError
from rl_sampler.tools.toolbox import Tools
from rl_sampler.user_code.connection import keep_alive

CONNECT_SECONDS = 5.0
"""A Service may lead to a pod whose node is gone; another attempt leads elsewhere."""
PING_SECONDS = 10.0
RESOLVED_SECONDS = 30.0
"""A Service that is deleted and made again has another address."""
CLAIM_SECONDS = 5.0
FIRST_PAUSE_SECONDS, PAUSE_GROWTH, LONGEST_PAUSE_SECONDS = 0.002, 1.01, 0.5
"""Between tries to claim: a Service leads to used pods, too, until their probes have failed. The
first hundred tries take about a third of a second."""
WAIT_SECONDS = 600.0
"""For a free pod of an episode, besides the longest time that another episode may take."""


class ProgramPods(CodeCalls):
    """Runs programs in pods of their own."""

    name = "the pod of programs"

    def __init__(
        self,
        address: str,
        *,
        key: str,
        counters: Counters,
        start_seconds: float = START_SECONDS,
    ) -> None:
        """Make a client; it connects for each call.

        Args:
            address: ``host:port`` of the Service, which spreads connections over ready pods.
            key: of this run; the pods know its digest alone.
            counters: count calls by outcome.
            start_seconds: how long to wait for a pod that listens.
        """
        super().__init__(counters=counters, start_seconds=start_seconds)
        host, _, port = address.rpartition(":")
        self._host, self._port, self._key = host, int(port), key
        self._resolved, self._until = "", 0.0

    async def ping(self) -> None:
        """Ask whether a pod is ready; raises CodeContainerError and TimeoutError."""
        await self.ask({"call": "ping"}, Answer, seconds=PING_SECONDS)

    async def open(self) -> Streams:
        """A new connection, on which the key was sent."""
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                await self._address(), self._port, limit=MAX_LINE_BYTES
            )
        keep_alive(writer.get_extra_info("socket"))
        writer.write(self._key.encode() + b"\n")
        return reader, writer

    async def _address(self) -> str:
        """The Service's address; the name service is not asked again for each try."""
        if time.monotonic() > self._until:
            loop = asyncio.get_running_loop()
            known = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._resolved = str(known[0][4][0])
            self._until = time.monotonic() + RESOLVED_SECONDS
        return self._resolved


class EpisodePods(ProgramPods):
    """Runs each program in a pod that is claimed for it, and ends with it."""

    name = "the pod of the episode"

    def __init__(
        self, address: str, *, key: str, counters: Counters, start_seconds: float = WAIT_SECONDS
    ) -> None:
        """Make a client, as of any pods; ``start_seconds``: how long to wait for a free pod."""
        super().__init__(address, key=key, counters=counters, start_seconds=start_seconds)
        self._any = ProgramPods(address, key=key, counters=counters, start_seconds=start_seconds)

    async def ping(self) -> None:
        """Ask whether a pod is free, and leave it so; errors as of any pods'."""
        await self._any.ping()

    def _pauses(self) -> Iterator[float]:
        pause = FIRST_PAUSE_SECONDS
        while True:
            yield pause
            pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE_SECONDS)

    async def open(self) -> Streams:
        """A connection to a pod that was claimed for it.

        Raises:
            OSError: no pod is free behind the address that the Service chose.
        """
        reader, writer = await super().open()
        try:
            async with asyncio.timeout(CLAIM_SECONDS):
                writer.write(line({"call": "claim"}))
                answer = await reader.readline()
            if not answer.endswith(b"\n") or json.loads(answer) != {}:
                raise ConnectionRefusedError("each pod serves another episode")
        except BaseException:
            writer.close()
            raise
        return reader, writer


class ProgramServers:
    """In the place of the toolbox: a group begins only when a pod of programs answers."""

    def __init__(self, pods: ProgramPods, *, counters: Counters) -> None:
        """Wait for these pods."""
        self._pods, self._counters = pods, counters

    async def open(self) -> Tools:
        """Check that a pod answers; programs bring their own tools.

        Raises:
            ToolDownError: none does.
        """
        try:
            await self._pods.ping()
        except (CodeContainerError, TimeoutError) as error:
            late = f"{self._pods.name} does not answer in time"
            raise ToolDownError(str(error) or late) from error
        return Tools({}, longest=1, counters=self._counters)

    async def close(self) -> None:
        """Nothing to close: calls close their connections."""


def program_pods_of(assignment: Assignment, *, key: str, counters: Counters) -> ProgramPods | None:
    """The pods that run this run's programs; None where they run in this pod, or there are none."""
    address, program = assignment.env.programs, assignment.spec.agent.program
    if not address or program is None:
        return None
    if not program.single_use:
        return ProgramPods(address, key=key, counters=counters)
    wait = WAIT_SECONDS + program.timeout_seconds
    return EpisodePods(address, key=key, counters=counters, start_seconds=wait)
