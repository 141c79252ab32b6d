"""Worlds on the servers of a session: one for each test, or one that tests of a kind share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kubernetes import client

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_operator.kube.cluster import Cluster
from tests.contract.rl_operator.reconciling import Writes
from tests.contract.rl_operator.world import World, a_namespace
from tests.kube.apiserver import ApiServer


@dataclass(frozen=True)
class Servers:
    """What worlds are made on."""

    apiserver: ApiServer
    api: client.ApiClient
    operators_api: client.ApiClient


@contextmanager
def a_world(servers: Servers, stores: Stores, settings: StoreSettings) -> Iterator[World]:
    """An empty namespace, which is cleared in the end."""
    writes = Writes()
    made = World(
        apiserver=servers.apiserver,
        cluster=Cluster(servers.api, may_write=writes.may_write, count=writes.accepted),
        operators=Cluster(servers.operators_api, may_write=writes.may_write, count=writes.accepted),
        stores=stores,
        settings=settings,
        namespace=a_namespace(servers.apiserver),
        writes=writes,
    )
    yield made
    if made.operator is not None:
        made.operator.close()
    writes.crash_after = None
    made.clear()
