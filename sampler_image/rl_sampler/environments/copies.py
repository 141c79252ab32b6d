"""Where an environment's servers are: at the manifest's URL, or in the pods of its image."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable

from rl_sampler.engine.listening import url_of
from rl_sampler.environments.protocol import EnvironmentDownError

Servers = Callable[[], Awaitable[list[str]]]
"""Base URLs of servers of which any may play an episode, in the order in which they are asked."""


def at_url(url: str) -> Servers:
    """The one server of a URL."""

    async def servers() -> list[str]:
        return [url]

    return servers


def at_address(address: str) -> Servers:
    """The ready pods behind a name: each of its addresses, in an order that is new each time.

    Args:
        address: ``host:port``.
    """
    host, _, port = address.rpartition(":")

    async def servers() -> list[str]:
        loop = asyncio.get_running_loop()
        try:
            listed = await loop.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        except OSError as error:
            raise EnvironmentDownError(
                f"no pod of the environment's image is ready: {address} cannot be looked up"
            ) from error
        urls = sorted({url_of(str(place[0]), int(port)) for *_, place in listed})
        random.shuffle(urls)
        return urls

    return servers
