"""Connections that never lead to where a node finds its own credentials."""

from __future__ import annotations

import errno
import socket

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
