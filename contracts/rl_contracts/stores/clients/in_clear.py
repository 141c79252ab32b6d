"""Stores outside of the cluster that are reached without TLS: accepted, with a warning.

Whether an address is outside follows from its name alone (``addresses.is_internal``): no name
server is asked.
"""

from __future__ import annotations

from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri, split_options

from rl_contracts.addresses import host_of, is_internal, is_loopback
from rl_contracts.reader import IN_CLEAR
from rl_contracts.stores.clients.deployment import Warned
from rl_contracts.stores.clients.mongo_uri import SRV
from rl_contracts.stores.clients.settings import StoreSettings


def state_store(settings: StoreSettings) -> Warned | None:
    """The warning of a document store outside of the cluster without TLS."""
    uri = settings.mongo_uri.get_secret_value()
    certificates = settings.mongo_ca or settings.mongo_client_certificate.get_secret_value()
    if certificates or _has_tls(uri):
        return None
    outside = sorted(host for host in _hosts(uri) if not _is_inside(host))
    if not outside:
        return None
    return Warned(
        reason=IN_CLEAR,
        message=f"mongoUri names {outside[0][:100]} without TLS: the password and all data cross "
        "the network in clear. Add tls=true to its options, or set mongoCa.",
    )


def bucket(settings: StoreSettings) -> Warned | None:
    """The warning of an S3 endpoint outside of the cluster without TLS."""
    host = host_of(settings.s3_endpoint)
    if not settings.s3_endpoint.startswith("http:") or _is_inside(host):
        return None
    return Warned(
        reason=IN_CLEAR,
        message=f"s3Endpoint is http://{host[:100]}: requests, which are signed and not encrypted, "
        "and all data cross the network in clear. Use https.",
    )


def _has_tls(uri: str) -> bool:
    """Whether the options of a URI turn TLS on, as the driver reads them."""
    query = uri.partition("?")[2]
    options = split_options(query, warn=True) if query else {}
    lower = {name.lower(): value for name, value in options.items()}
    return bool(lower.get("tls", lower.get("ssl", uri.startswith(SRV))))


def _hosts(uri: str) -> list[str]:
    """Hosts of a URI; of mongodb+srv the name itself, which only a name server could resolve."""
    if uri.startswith(SRV):
        return [host_of(uri)]
    try:
        return [str(host) for host, _ in parse_uri(uri, warn=True)["nodelist"]]
    except (PyMongoError, ValueError):
        return []  # refused when connecting


def _is_inside(host: str) -> bool:
    return is_loopback(host) or is_internal(host) or host.startswith("/")
