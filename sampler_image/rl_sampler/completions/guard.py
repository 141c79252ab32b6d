"""Requests to servers of a manifest: never to where a node finds its own credentials."""

from __future__ import annotations

import errno
import socket
from typing import Any

import aiohttp
from aiohttp import AddrInfoType

from rl_contracts.addresses import is_metadata


def guarded_socket(address: AddrInfoType) -> socket.socket:
    """A socket for a connection to an address; PermissionError where it must not be asked.

    The operator has checked the addresses of a manifest as they are written. What a name means may
    change at any time, and a server may redirect a request, so each address is checked when it is
    connected to.
    """
    family, kind, protocol, _, (host, *_) = address
    if is_metadata(str(host)):
        leads = f"this leads to {host}, where a node finds its credentials"
        raise PermissionError(errno.EACCES, leads)
    return socket.socket(family, kind, protocol)


def open_outside(*, redirects: bool = True) -> aiohttp.ClientSession:
    """A session for requests to servers that the manifest names.

    Args:
        redirects: follow them. aiohttp takes ``Authorization`` away from a request that another
            server gets, but no other header, so a session that sends secrets must not.
    """
    traces = [aiohttp.TraceConfig()]
    if not redirects:
        traces[0].on_request_redirect.append(_refuse)
    connector = aiohttp.TCPConnector(socket_factory=guarded_socket)
    return aiohttp.ClientSession(connector=connector, trace_configs=traces)


async def _refuse(
    session: aiohttp.ClientSession, context: Any, redirect: aiohttp.TraceRequestRedirectParams
) -> None:
    raise aiohttp.ClientError("it redirects, and its headers must not go elsewhere")
