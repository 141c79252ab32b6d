"""The agent's ports in the pod's network: a bounded number of connections each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakSet

from aiohttp import web

CONNECTIONS = 128
"""At the same time, on each port."""
BACKLOG = 1024
"""Connections that wait to be accepted; others try again after a second."""
KEEPALIVE_SECONDS = 15.0
"""Longest silence of a connection after an answer."""
ANSWERED_SECONDS = 60.0
"""For requests that are being answered when the block ends."""
CANCELLED_SECONDS = 1.0
"""The same where handlers may be cancelled: a long answer must not delay the pod's end."""
KEPT = web.AppKey("kept", WeakSet[asyncio.BaseTransport])
"""Connections whose place no other takes, where an application has them."""


def url_of(host: str, port: int | None) -> str:
    """The URL of what listens at an IP address, without a path."""
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{port}"


@asynccontextmanager
async def listening(
    application: web.Application,
    *,
    port: int,
    connections: int = CONNECTIONS,
    host: str = "0.0.0.0",
    cancels: bool = False,
) -> AsyncIterator[int]:
    """Serve until the block ends; by default on all interfaces, for the kubelet.

    Beyond the number of connections a new one takes the place of the oldest that is not kept, so
    that silent and slow clients keep nobody out, and cost no more than this many descriptors.

    Args:
        application: answers; ``keep`` marks connections of clients that it knows.
        port: 0 picks a free one.
        connections: at the same time, ≥ 1.
        host: address to listen on.
        cancels: a client that disconnects cancels the handler of its request.

    Yields:
        The bound port.
    """
    runner = web.AppRunner(
        application,
        access_log=None,
        keepalive_timeout=KEEPALIVE_SECONDS,
        handler_cancellation=cancels,
        shutdown_timeout=CANCELLED_SECONDS if cancels else ANSWERED_SECONDS,
    )
    await runner.setup()
    server = runner.server
    assert server is not None

    def accepted() -> asyncio.BaseProtocol:
        _end_oldest(server, application.get(KEPT, WeakSet()), most=connections - 1)
        return server()

    loop = asyncio.get_running_loop()
    try:
        listener = await loop.create_server(accepted, host, port, backlog=BACKLOG)
        try:
            yield int(listener.sockets[0].getsockname()[1])
        finally:
            listener.close()
    finally:
        await runner.cleanup()


def keep(request: web.Request) -> None:
    """Do not give the place of this request's connection to another."""
    if request.transport is not None:
        request.app[KEPT].add(request.transport)


def _end_oldest(server: web.Server, kept: WeakSet[asyncio.BaseTransport], *, most: int) -> None:
    """End the oldest connections until there are no more than ``most``.

    asyncio accepts many in one go before any of them counts; the next ends them.
    """
    transports = [each.transport for each in server.connections]  # in the order of their begin
    live = [each for each in transports if each is not None and not each.is_closing()]
    ending = [each for each in live if each not in kept]
    for transport in ending[: max(0, len(live) - most)]:
        transport.abort()
