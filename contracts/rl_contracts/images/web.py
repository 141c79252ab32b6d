"""Fetches an image by ``https``: of no host within the cluster, without redirects, within limits.

The address of the host is looked up once, checked, and connected to, so that a name cannot mean
another host after the check.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import urllib3

from rl_contracts import addresses
from rl_contracts.images.decoder import BadImageError

SECONDS = 30.0
"""For connecting, and between two pieces of an answer."""
WHOLE_SECONDS = 300.0
"""For an image."""
CHUNK = 1 << 16
PORT = 443


def is_outside(host: str) -> bool:
    """Whether an IP address may be asked: clusters use shared addresses (100.64.0.0/10), too."""
    inside = addresses.is_internal(host) or addresses.is_loopback(host)
    address = ipaddress.ip_address(host.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_global and not (inside or addresses.is_metadata(host))


def fetch(
    url: str,
    *,
    most: int,
    allowed: Callable[[str], bool] = is_outside,
    authorities: str | None = None,
) -> bytes:
    """The file at an ``https`` address.

    Args:
        url: the address.
        most: bytes.
        allowed: whether an IP address may be asked.
        authorities: file of trusted authorities; None: those of the system.

    Raises:
        BadImageError: it cannot be fetched.
    """
    host = addresses.host_of(url)
    try:
        return _fetched(url, host, most=most, allowed=allowed, authorities=authorities)
    except (urllib3.exceptions.HTTPError, ValueError) as error:  # ValueError: what no host can be
        raise BadImageError(f"cannot be fetched from {host}: {type(error).__name__}") from error


def _fetched(
    url: str, host: str, *, most: int, allowed: Callable[[str], bool], authorities: str | None
) -> bytes:
    parts, until = urlsplit(url), time.monotonic() + WHOLE_SECONDS
    port = parts.port or PORT
    at = _address(host, port, allowed)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    pool = urllib3.HTTPSConnectionPool(
        at,
        port,
        server_hostname=host,
        assert_hostname=host,
        ca_certs=authorities,
        timeout=urllib3.Timeout(SECONDS),
        retries=False,
    )
    try:
        with pool.urlopen(
            "GET",
            path,
            headers={"Host": parts.netloc.rpartition("@")[2]},
            redirect=False,
            preload_content=False,
        ) as answer:
            if answer.status != 200:
                raise BadImageError(f"cannot be fetched: {host} answers {answer.status}")
            return _within(answer, most, until=until)
    finally:
        pool.close()


def _within(answer: urllib3.BaseHTTPResponse, most: int, *, until: float) -> bytes:
    received = bytearray()
    while chunk := answer.read1(CHUNK):
        received += chunk
        if len(received) > most:
            raise BadImageError(f"has more than spec.data.images.maxBytes = {most} bytes")
        if time.monotonic() > until:
            raise BadImageError(f"cannot be fetched: it took more than {WHOLE_SECONDS:g} s")
    return bytes(received)


def _address(host: str, port: int, allowed: Callable[[str], bool]) -> str:
    try:
        known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise BadImageError(f"cannot be fetched: {host} is not known") from error
    for _, _, _, _, (address, *_) in known:
        if allowed(str(address)):
            return str(address)
    raise BadImageError(
        f"leads to {host}, which is within the cluster: put the image into the bucket"
    )
