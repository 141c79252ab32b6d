"""The transport to an MCP server's program in the container ``code``, for the MCP client.

As the SDK's own transport to a child process: a line of JSON-RPC each way.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from rl_sampler.code.client import Channel, CodeContainer, CodeContainerError
from rl_sampler.code.replies import Started

logger = logging.getLogger(__name__)

Incoming = SessionMessage | Exception


@asynccontextmanager
async def program_of(
    code: CodeContainer, server: str
) -> AsyncIterator[
    tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]
]:
    """Start an MCP server's program; it ends with the context.

    Args:
        code: the container in which it runs.
        server: name in the manifest, which holds the command.

    Raises:
        CodeContainerError: it cannot be started.
    """
    async with code.call({"call": "start", "server": server}) as channel:
        started = await channel.receive(Started)
        if started.failure is not None:
            raise CodeContainerError(started.failure.message)
        to_session, received = anyio.create_memory_object_stream[Incoming](0)
        sent, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, channel, to_session)
            tasks.start_soon(_write, channel, from_session, to_session)
            try:
                yield received, sent
            finally:
                tasks.cancel_scope.cancel()
                for stream in (to_session, received, sent, from_session):
                    stream.close()


async def _read(channel: Channel, to_session: MemoryObjectSendStream[Incoming]) -> None:
    """Pass the program's lines on; the session ends when the program does."""
    async with to_session:
        try:
            while (received := await channel.reader.readline()).endswith(b"\n"):
                await to_session.send(_parsed(received))
        except (OSError, ValueError) as error:  # ValueError: a line that is too long
            logger.warning("an MCP server's program was dropped: %s", error)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return  # the session is over


def _parsed(received: bytes) -> Incoming:
    """A message, or the error that the session reports."""
    try:
        return SessionMessage(
            mcp_types.jsonrpc_message_adapter.validate_json(received, by_name=False)
        )
    except ValueError as error:
        return error


async def _write(
    channel: Channel,
    from_session: MemoryObjectReceiveStream[SessionMessage],
    to_session: MemoryObjectSendStream[Incoming],
) -> None:
    async with from_session:
        async for message in from_session:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                channel.writer.write(text.encode() + b"\n")
                await channel.writer.drain()
            except OSError:
                to_session.close()  # else the session would wait for an answer
                return
