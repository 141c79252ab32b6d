"""``python -m rl_sampler.user_code.server <socket>``: the program of the container ``code``.

It runs what others wrote: the user's scorers, tools and agent, programs of MCP servers, and
math-verify on what the policy wrote. It has another user than the agent, none of its Secrets, and
shares a folder with a socket with it. ``rl_sampler.code.wire`` has the messages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from rl_contracts.env import CodeEnv
from rl_sampler.code.wire import MAX_LINE_BYTES, failure, line
from rl_sampler.user_code import mcp_programs
from rl_sampler.user_code.hosted import Hosted
from rl_sampler.user_code.programs.connection import (
    REQUEST_SECONDS,
    Connection,
    ignore_interrupts,
)
from rl_sampler.user_code.programs.episode_folders import remove_left

logger = logging.getLogger("rl_sampler.code")

SOCKET_MODE = 0o660
"""The agent reaches the socket through the group that the pod gives to the folder's files."""
BACKLOG = 4096


class Server:
    """Accepts connections, each for one call."""

    def __init__(self, hosted: Hosted) -> None:
        """Answer with what is hosted here."""
        self._hosted = hosted

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to its end."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = json.loads(await reader.readline())
            if request["call"] == "start":
                await self._start(request["server"], reader, writer)
            else:
                connection = Connection(reader, writer)
                await connection.answer(self._hosted.answer(request, connection.ask))
            await writer.drain()
        except (OSError, TimeoutError, ValueError, KeyError) as error:
            logger.warning("a connection was dropped: %s", error)
        finally:
            writer.close()

    async def _start(
        self, server: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        spec = await asyncio.to_thread(self._hosted.spec)
        commands = {known.name: known.command for known in spec.agent.mcp_servers if known.command}
        if server in commands:
            await mcp_programs.run(commands[server], reader, writer)
        else:
            writer.write(line(failure("down", f"the manifest has no command for {server!r}")))


def listening_at(path: Path) -> socket.socket:
    """A socket at a path; that of an earlier server is removed."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(SOCKET_MODE)
    return listener


async def serve(listener: socket.socket, spec_file: Path) -> None:
    """Serve until SIGTERM, which ends the process at once.

    Args:
        listener: of ``listening_at``.
        spec_file: the manifest.
    """
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os._exit, 0)
    ignore_interrupts()
    server = await asyncio.start_unix_server(
        Server(Hosted(spec_file)).accept, sock=listener, limit=MAX_LINE_BYTES, backlog=BACKLOG
    )
    logger.info("ready")
    async with server:
        await server.serve_forever()


def main(arguments: list[str]) -> None:
    """Serve what the manifest needs."""
    parser = argparse.ArgumentParser(prog="rl_sampler.user_code.server", description=__doc__)
    parser.add_argument("socket", type=Path)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    ours = CodeEnv.parse(os.environ)
    if ours.code_folder is not None:
        # Last on the path, so that a user's module cannot replace a module of the image.
        sys.path.append(str(ours.code_folder))
    logger.info("%d folders of an earlier server were removed", remove_left())
    asyncio.run(serve(listening_at(given.socket), ours.spec_file))


if __name__ == "__main__":
    main(sys.argv[1:])
