"""What the host of a URL says about where it leads, without asking a name server."""

from __future__ import annotations

import base64
import ipaddress
import re
import socket
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

OLD_IPV4 = re.compile(r"(0[xX])?[0-9a-fA-F]+(\.(0[xX])?[0-9a-fA-F]+){0,3}")
"""What the C library takes for an IPv4 address, such as 2852039166 or 0xa9.254.43518."""
SERVICE = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+\.svc(\.[a-z0-9.-]+)?)?")
"""``name`` or ``name.namespace.svc``, with the cluster's domain or without."""
PORTS = {"http": 80, "https": 443}
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


def proxy_of(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy for a URL, as kubectl finds it; None: the server is reached without one.

    The proxy is that of the URL's own scheme, e.g. HTTPS_PROXY, unless NO_PROXY names the host; a
    variable in capitals wins. The machine itself is reached without a proxy.

    Args:
        url: of a server.
        environ: environment variables.
    """
    parts, host = urlsplit(url), host_of(url)
    proxy, without = (
        environ.get(name.upper()) or environ.get(name) or ""
        for name in (f"{parts.scheme}_proxy", "no_proxy")
    )
    if not proxy or is_loopback(host):
        return None
    port = parts.port or PORTS.get(parts.scheme, 0)
    if any(_covers(entry.strip().lower(), host, port) for entry in without.split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def proxy_headers(proxy: str) -> dict[str, str]:
    """Headers that log in to a proxy whose URL has a user and a password."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"proxy-authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


def _covers(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY names a host: ``*``, an address, a range, or a domain.

    All but a range may have a port. ``x`` names itself and what is below it, ``.x`` and ``*.x``
    only the latter.
    """
    if entry == "*":
        return True
    network = _network(entry)
    if network is None and ":" in entry:
        entry, _, wanted = entry.rpartition(":")
        if wanted != str(port):
            return False
        network = _network(entry.strip("[]"))
    if network is not None:
        address = _address(host)
        return address is not None and address in network
    below = entry.removeprefix("*.").removeprefix(".")
    return bool(entry) and (host == entry or host.endswith(f".{below}"))


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


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
