"""The agent's client of the pods that run programs: a connection to their Service for each call.

Pods of single episodes are claimed. Their Service has no address of its own but those of all ready
pods, which are tried one after the other: a Service that chooses would lead the last claims of many
to pods that others have claimed, again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import random
import socket
import time
from collections.abc import Iterator, Mapping

from rl_sampler.code.client import START_SECONDS, CodeCalls, CodeContainerError, Streams
from rl_sampler.code.replies import Answer
from rl_sampler.code.wire import MAX_LINE_BYTES, line
from rl_sampler.engine.assignment import Assignment
from rl_sampler.engine.counters import Counters
from rl_sampler.tools.tool import ToolDownError
from rl_sampler.tools.toolbox import Tools
from rl_sampler.user_code.programs.connection import keep_alive

CONNECT_SECONDS = 5.0
"""A Service may lead to a pod whose node is gone; another attempt leads elsewhere."""
PING_SECONDS = 10.0
RESOLVED_SECONDS = 30.0
"""A Service that is deleted and made again has another address."""
CLAIM_SECONDS = 5.0
REACH_SECONDS = 0.5
"""For a connection to a single pod; a pod that does not take it in time is passed over."""
PASSED_SECONDS = 0.5
"""How long a pod that was tried is tried by no other claim of this agent: it has an episode, and
its address stands in the name service until its probe has failed."""
LISTED_SECONDS = 1.0
"""A list of the pods' addresses is used as long."""
PAUSES = (0.05, 0.1, 0.2, 0.4)
"""Seconds between the first rounds over all pods; later rounds have the last one."""
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
        return await self.connect(await self._address(), self._port, seconds=CONNECT_SECONDS)

    async def connect(self, host: str, port: int, *, seconds: float) -> Streams:
        """A new connection to this address, on which the key was sent."""
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(host, port, limit=MAX_LINE_BYTES)
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


Place = tuple[str, int]
"""Address and port of a pod."""


class ReadyPods(ProgramPods):
    """Pods behind a name that has the addresses of all that are ready: each is tried by itself."""

    def __init__(
        self, address: str, *, key: str, counters: Counters, start_seconds: float = START_SECONDS
    ) -> None:
        """Make a client, as of any pods."""
        super().__init__(address, key=key, counters=counters, start_seconds=start_seconds)
        self._listed: list[Place] = []
        self._listed_until = 0.0
        self._listing = asyncio.Lock()

    async def open(self) -> Streams:
        """A connection to any of them, on which the key was sent.

        Raises:
            OSError: none takes one.
        """
        places = await self._places()
        for place in random.sample(places, len(places)):
            if self._passes(place):
                continue
            with contextlib.suppress(OSError):
                return await self._open(*place)
        raise ConnectionRefusedError(f"none of {len(places)} pods is free")

    def _passes(self, place: Place) -> bool:
        """Whether this pod is passed over now."""
        return False

    async def _open(self, host: str, port: int) -> Streams:
        return await self.connect(host, port, seconds=REACH_SECONDS)

    async def _places(self) -> list[Place]:
        """Addresses of the ready pods; raises OSError where the name has none."""
        async with self._listing:
            if time.monotonic() > self._listed_until:
                self._listed = await self._look_up()
                self._listed_until = time.monotonic() + LISTED_SECONDS
            return self._listed

    async def _look_up(self) -> list[Place]:
        loop = asyncio.get_running_loop()
        known = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        return sorted({(str(place[0]), self._port) for *_, place in known})

    def _pauses(self) -> Iterator[float]:
        yield from PAUSES
        yield from itertools.repeat(PAUSES[-1])


class EpisodePods(ReadyPods):
    """Runs each program in a pod that is claimed for it, and ends with it."""

    name = "the pod of the episode"

    def __init__(
        self,
        address: str,
        *,
        key: str,
        counters: Counters,
        start_seconds: float = WAIT_SECONDS,
        image: str = "",
        others: Mapping[str, EpisodePods] | None = None,
    ) -> None:
        """Make a client.

        Args:
            address: ``host:port`` of the Service with the addresses of all ready pods.
            key: as of any pods.
            counters: as of any pods.
            start_seconds: how long to wait for a free pod.
            image: of these pods; empty: not known.
            others: pods of further images, by image.
        """
        super().__init__(address, key=key, counters=counters, start_seconds=start_seconds)
        self._any = ReadyPods(address, key=key, counters=counters, start_seconds=start_seconds)
        self._passed: dict[Place, float] = {}
        self.image = image
        self.others = dict(others or {})

    def for_image(self, image: str) -> CodeCalls:
        """The pods of an image; empty: these.

        Raises:
            CodeContainerError: there are none of it.
        """
        if image in ("", self.image):
            return self
        if image not in self.others:
            raise CodeContainerError(
                f"there are no pods of image {image}: name it in agent.program.images"
            )
        return self.others[image]

    def _passes(self, place: Place) -> bool:
        """Whether another claim of this agent has just tried it; if not, this one does."""
        now = time.monotonic()
        if now < self._passed.get(place, 0.0):
            return True
        self._passed[place] = now + PASSED_SECONDS
        return False

    async def _look_up(self) -> list[Place]:
        listed = await super()._look_up()
        self._passed = {place: self._passed[place] for place in listed if place in self._passed}
        return listed

    async def ping(self) -> None:
        """Ask whether a pod of any image is free, and leave it so; errors as of any pods'."""
        pods = (self, *self.others.values())
        asked = {asyncio.create_task(each._any.ping()) for each in pods}
        try:
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            for first in done:
                first.result()
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _open(self, host: str, port: int) -> Streams:
        """A connection to this pod, which was claimed for it.

        Raises:
            OSError: it serves another episode, or does not answer.
        """
        reader, writer = await super()._open(host, port)
        try:
            async with asyncio.timeout(CLAIM_SECONDS):
                writer.write(line({"call": "claim"}))
                answer = await reader.readline()
            if not answer.endswith(b"\n") or json.loads(answer) != {}:
                raise ConnectionRefusedError("it serves another episode")
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
    make = functools.partial(
        EpisodePods,
        key=key,
        counters=counters,
        start_seconds=WAIT_SECONDS + program.timeout_seconds,
    )
    others = {
        image: make(place, image=image) for image, place in assignment.env.episode_pods.items()
    }
    return make(address, image=program.image or "", others=others)
