"""What the host of a URL says about where it leads, without asking a name server."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

OLD_IPV4 = re.compile(r"(0[xX])?[0-9a-fA-F]+(\.(0[xX])?[0-9a-fA-F]+){0,3}")
"""What the C library takes for an IPv4 address, such as 2852039166 or 0xa9.254.43518."""
SERVICE = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+\.svc(\.[a-z0-9.-]+)?)?")
"""``name`` or ``name.namespace.svc``, with the cluster's domain or without."""
METADATA_NAMES = ("metadata", "metadata.google.internal", "instance-data")
METADATA_ADDRESSES = (
    ipaddress.ip_address("100.100.100.200"),
    ipaddress.ip_address("fd00:ec2::254"),
)
"""Where clouds serve the credentials of a node, besides link-local addresses."""


def host_of(url: str) -> str:
    """The host of a URL, in lower case; empty where there is none."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether the host is this pod itself."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def is_internal(host: str) -> bool:
    """Whether the host has the name of a Service or a private address."""
    address = _address(host)
    if address is not None:
        return address.is_private and not is_metadata(host)
    return SERVICE.fullmatch(host) is not None


def is_metadata(host: str) -> bool:
    """Whether the host is link-local, or a known server of a node's credentials."""
    address = _address(host)
    if address is None:
        return host in METADATA_NAMES
    return address.is_link_local or address in METADATA_ADDRESSES


def proxy_of(url: str, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The proxy for a URL, and the hosts that are reached without it, as kubectl reads them.

    The proxy is that of the URL's own scheme, e.g. HTTPS_PROXY; a variable in capitals wins. The
    machine itself is reached without a proxy.

    Args:
        url: of a server.
        environ: environment variables.
    """
    scheme = urlsplit(url).scheme
    proxy, hosts = (
        environ.get(name.upper()) or environ.get(name) or None
        for name in (f"{scheme}_proxy", "no_proxy")
    )
    if is_loopback(host_of(url)):
        return None, None
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy, hosts


def _address(host: str) -> Address | None:
    try:
        address: Address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        if not OLD_IPV4.fullmatch(host):
            return None
        try:
            address = ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    return getattr(address, "ipv4_mapped", None) or address
