"""The agent's client of the pods that run programs: a connection to their Service for each call."""

from __future__ import annotations

import asyncio

from rl_sampler.code.client import START_SECONDS, CodeCalls, CodeContainerError, Streams
from rl_sampler.code.replies import Answer
from rl_sampler.code.wire import MAX_LINE_BYTES
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.counters import Counters
from rl_sampler.tools.tool import ToolDownError
from rl_sampler.tools.toolbox import Tools
from rl_sampler.user_code.connection import keep_alive

CONNECT_SECONDS = 5.0
"""A Service may lead to a pod whose node is gone; another attempt leads elsewhere."""
PING_SECONDS = 10.0


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

    async def ping(self) -> None:
        """Ask whether a pod is ready; raises CodeContainerError and TimeoutError."""
        await self.ask({"call": "ping"}, Answer, seconds=PING_SECONDS)

    async def open(self) -> Streams:
        """A new connection, on which the key was sent."""
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                self._host, self._port, limit=MAX_LINE_BYTES
            )
        keep_alive(writer.get_extra_info("socket"))
        writer.write(self._key.encode() + b"\n")
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
            raise ToolDownError(str(error) or "no pod of programs answers in time") from error
        return Tools({}, longest=1, counters=self._counters)

    async def close(self) -> None:
        """Nothing to close: calls close their connections."""


def program_pods_of(assignment: Assignment, *, key: str, counters: Counters) -> ProgramPods | None:
    """The pods that run this run's programs; None where they run in this pod, or there are none."""
    if not assignment.env.programs:
        return None
    return ProgramPods(assignment.env.programs, key=key, counters=counters)
