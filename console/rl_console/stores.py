"""Connects to a namespace's stores from outside the cluster, by port-forward where needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from rl_console.cluster.kube import Cluster
from rl_console.cluster.portforward import port_forward
from rl_console.errors import RequestRefusedError
from rl_console.jobs import STORES_SECRET
from rl_console.tools import Tools
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import Objects

PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A Service of the cluster and its port."""

    name: str
    namespace: str
    port: int


def service_of(url: str, *, default_namespace: str) -> ServiceAddress | None:
    """The Service that a URL names, e.g. ``http://minio.rl.svc:9000``; None for another host."""
    parts = urlsplit(url)
    labels = (parts.hostname or "").split(".")
    inside = len(labels) <= 2 or labels[2] == "svc"
    if not inside or parts.port is None:
        return None
    namespace = labels[1] if len(labels) > 1 else default_namespace
    return ServiceAddress(labels[0], namespace, parts.port)


def readdressed(url: str, *, port: int) -> str:
    """The URL with 127.0.0.1 and ``port`` in place of host and port."""
    parts = urlsplit(url)
    credentials, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{credentials}{at}127.0.0.1:{port}"))


def read_settings(cluster: Cluster, namespace: str, name: str = STORES_SECRET) -> StoreSettings:
    """Settings of a namespace's stores; raises NotFoundError without the Secret."""
    return StoreSettings.from_mapping(cluster.secret(namespace, name))


@contextlib.contextmanager
def bucket(cluster: Cluster, tools: Tools, namespace: str) -> Iterator[Objects]:
    """Open a namespace's bucket; a port-forward lasts as long as the context."""
    settings = read_settings(cluster, namespace)
    with _reachable(tools, settings.s3_endpoint, namespace) as endpoint:
        yield objects_behind(settings, endpoint)


def objects_behind(settings: StoreSettings, endpoint: str) -> Objects:
    """The bucket at ``endpoint``, which may be a port-forward to the one in the settings."""
    if endpoint == settings.s3_endpoint:
        return Objects(settings, patience_seconds=PATIENCE_SECONDS)
    # The forwarded address carries no bucket name, and the certificate names the real host.
    update = {"s3_endpoint": endpoint, "s3_addressing_style": "path"}
    return Objects(
        settings.model_copy(update=update),
        patience_seconds=PATIENCE_SECONDS,
        server_name=urlsplit(settings.s3_endpoint).hostname or "",
    )


@contextlib.contextmanager
def stores(
    cluster: Cluster, tools: Tools, namespace: str, secret: str = STORES_SECRET
) -> Iterator[Stores]:
    """Open all stores of a namespace; port-forwards last as long as the context."""
    settings = read_settings(cluster, namespace, secret)
    mongo_uri = settings.mongo_uri.get_secret_value()
    with (
        _reachable(tools, settings.s3_endpoint, namespace) as endpoint,
        _reachable(tools, mongo_uri, namespace) as uri,
    ):
        update = {"s3_endpoint": endpoint, "mongo_uri": SecretStr(uri)}
        connected = Stores.connect(
            settings.model_copy(update=update), patience_seconds=PATIENCE_SECONDS
        )
        try:
            yield connected
        finally:
            connected.close()


@contextlib.contextmanager
def _reachable(tools: Tools, url: str, namespace: str) -> Iterator[str]:
    service = service_of(url, default_namespace=namespace)
    if service is None:
        yield url
        return
    if not service.name:
        raise RequestRefusedError(doing="reading the stores' Secret", cause="an address is empty")
    target = f"service/{service.name}"
    with port_forward(tools, namespace=service.namespace, target=target, port=service.port) as port:
        yield readdressed(url, port=port)
