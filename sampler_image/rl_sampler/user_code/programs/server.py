"""The program of a pod of programs: runs an episode's program for whoever has the run's key.

``program_pod`` copies it into the image of the user, where ``python3`` starts it. Its
files have the SHA-256 of the key, not the key, which agents send with each call.
``rl_sampler.code.wire`` has the messages.

With ``--once`` it serves one episode, whose agent claims it first: nobody else can connect then,
and the server ends with that connection.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from rl_sampler.code.wire import MAX_LINE_BYTES, failure, line
from rl_sampler.user_code.programs.connection import (
    REQUEST_SECONDS,
    Connection,
    ignore_interrupts,
    keep_alive,
)
from rl_sampler.user_code.programs.episode_folders import remove_left
from rl_sampler.user_code.programs.harbor_tests import run_tests
from rl_sampler.user_code.programs.process import run_program
from rl_sampler.user_code.programs.single_use import (
    EPISODE_ENDED,
    POD_USED,
    end_all,
    guard,
    take_token,
)

logger = logging.getLogger("rl_sampler.programs")

KEY_BYTES = 1024
"""Longest first line. What a client without the key may send is small."""
MOST_STRANGERS = 256
"""Connections at the same time whose key was not read yet; others are closed."""
BACKLOG = 4096
CHUNK = 1 << 16


class RefusedCallError(ValueError):
    """A connection without the key, or with a request that is none."""


class Server:
    """Accepts connections, each for one call."""

    def __init__(self, digest: str, *, once: bool = False, root: Path = Path("/")) -> None:
        """Serve clients whose key has this SHA-256, in hexadecimal digits.

        ``once``: serve the calls of the first connection that claims it, and no others. ``root``:
        in place of the container's root, for tests of Harbor tasks.
        """
        self._digest, self._once, self._root = digest, once, root
        self._strangers = 0
        self.claimed, self.over = asyncio.Event(), asyncio.Event()
        """With ``once``: an episode has begun, and has ended."""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to its end."""
        keep_alive(writer.get_extra_info("socket"))
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                if not await self._knows(reader):
                    return
                request = await _request(reader)
            if self._once and request["call"] == "claim" and not self.claimed.is_set():
                await self._episode(reader, writer)
            else:
                await Connection(reader, writer).answer(self._called(request))
                await writer.drain()
        except (OSError, TimeoutError, ValueError, KeyError) as error:
            logger.warning("a connection was dropped: %s", error)
        finally:
            writer.close()

    async def _episode(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer all calls of the connection that has the pod, until it closes."""
        self.claimed.set()
        try:
            writer.write(line({}))
            while True:
                async with asyncio.timeout(REQUEST_SECONDS):
                    request = await _request(reader)
                await Connection(reader, writer).answer(_work(request, root=self._root))
                await writer.drain()
        finally:
            self.over.set()

    async def _called(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.claimed.is_set():
            return failure("down", "this pod serves another episode")
        if request["call"] == "ping":
            return {}
        if self._once:
            return failure("down", "this pod serves the episode that claims it")
        return await _work(request, root=None)

    async def _knows(self, reader: asyncio.StreamReader) -> bool:
        """Read the key; False where the client sent nothing, as the kubelet's probe does.

        Raises:
            RefusedCallError: it is not the run's.
        """
        if self._strangers >= MOST_STRANGERS:
            raise RefusedCallError(f"{MOST_STRANGERS} others have not sent their key yet")
        self._strangers += 1
        try:
            key = await reader.readline()
        finally:
            self._strangers -= 1
        if not key:
            return False
        if not hmac.compare_digest(hashlib.sha256(key.rstrip(b"\n")).hexdigest(), self._digest):
            raise RefusedCallError("its key is not the run's")
        return True


async def _request(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The line behind the key, which is longer than the reader's limit; nothing follows it."""
    received = bytearray()
    while not received.endswith(b"\n"):
        chunk = await reader.read(CHUNK)
        received += chunk
        if not chunk or len(received) > MAX_LINE_BYTES:
            raise RefusedCallError(f"its request ended after {len(received)} bytes")
    request: dict[str, Any] = json.loads(received)
    return request


async def _work(request: dict[str, Any], *, root: Path | None) -> dict[str, Any]:
    if request["call"] == "test" and root is not None:
        return await run_tests(request["tests"], environment=request["environment"], root=root)
    if request["call"] == "run":
        return await run_program(
            request["program"], task=request["task"], environment=request["environment"]
        )
    return failure("down", f"this pod knows no call {request['call']}")


async def serve(server: Server, *, port: int) -> None:
    """Serve until SIGTERM; programs that run then may end, as long as the kubelet waits."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    ignore_interrupts()
    running: set[asyncio.Task[None]] = set()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(server.accept(reader, writer))
        running.add(task)
        task.add_done_callback(running.discard)

    listener = await asyncio.start_server(accepted, port=port, limit=KEY_BYTES, backlog=BACKLOG)
    logger.info("ready")
    waits = [asyncio.create_task(event.wait()) for event in (stop, server.claimed)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    held = _shut(listener)
    if server.claimed.is_set():
        await server.over.wait()
        end_all()
        os._exit(EPISODE_ENDED)
    logger.info("%d programs still run", len(running))
    if running:
        await asyncio.wait(running)
    for each in held:
        each.close()
    os._exit(0)


def _shut(listener: asyncio.Server) -> list[socket.socket]:
    """Listen no more; the sockets that are returned keep the port until they are closed.

    A program that listened there would be taken for this pod: it would get the run's key, and could
    answer for other episodes.
    """
    held = [each.dup() for each in listener.sockets]
    listener.close()
    for each in held:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        each.shutdown(socket.SHUT_RDWR)  # of a socket that listens: it stays bound
    return held


def main(arguments: list[str]) -> None:
    """Serve the programs of a run."""
    parser = argparse.ArgumentParser(prog="programs", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key-digest", type=Path, required=True)
    parser.add_argument("--once", type=Path, help="folder of the token of a single episode's pod")
    parser.add_argument("--root", type=Path, default=Path("/"), help="in place of /, for tests")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if given.once is not None:
        if not take_token(given.once, given.key_digest.parent):
            logger.error("an episode may have run in this pod: it serves no other")
            sys.exit(POD_USED)
        guard()
    logger.info("%d folders of an earlier server were removed", remove_left())
    server = Server(
        given.key_digest.read_text().strip(), once=given.once is not None, root=given.root
    )
    asyncio.run(serve(server, port=given.port))


if __name__ == "__main__":
    main(sys.argv[1:])
