"""Look-ups of names that never lead to where a node finds its own credentials."""

from __future__ import annotations

import errno
import socket

from aiohttp import ThreadedResolver
from aiohttp.abc import ResolveResult

from rl_contracts.addresses import is_metadata


class GuardedResolver(ThreadedResolver):
    """Refuses a name whose addresses include one of a node's credentials.

    The operator has checked the addresses of a manifest as they are written. What a name means may
    change at any time, so it is checked again with the addresses that are connected to.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host; OSError where one of them is refused."""
        found = await super().resolve(host, port, family)
        for each in found:
            if is_metadata(each["host"]):
                leads = f"{host} leads to {each['host']}, where a node finds its credentials"
                raise PermissionError(errno.EACCES, leads)
        return found
