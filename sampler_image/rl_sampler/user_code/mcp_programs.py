"""Programs of MCP servers that the manifest starts with a command, in the container ``code``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from rl_sampler.code.wire import MAX_LINE_BYTES, failure, line

STOP_SECONDS = 2.0
"""For a program to end after its input has ended, and again after SIGTERM."""
CHUNK = 1 << 16


async def run(
    command: Sequence[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Start a program and connect its input and output with the agent until either side ends.

    The program has this container's environment. Its standard error goes into the container's log.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_LINE_BYTES,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        writer.write(line(failure("down", f"{command[0]} cannot be started: {error}")))
        return
    assert process.stdin is not None
    assert process.stdout is not None
    writer.write(line({}))
    copies = {
        asyncio.create_task(_copy(reader, process.stdin)),
        asyncio.create_task(_copy(process.stdout, writer)),
    }
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for copy in copies:
            copy.cancel()
        await asyncio.wait(copies)
        process.stdin.close()
        await _end(process)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Wait for a program whose input has ended, and end its whole session where it stays."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
                break
        _signal(process.pid, number)
    await process.wait()
    _signal(process.pid, signal.SIGKILL)  # what it left behind


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
