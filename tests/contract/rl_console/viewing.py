"""The operator's endpoint for viewers behind the API server's proxy, with runs in real stores."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_operator.kube.cluster import Cluster
from rl_operator.kube.settings import Images
from rl_operator.process.data_endpoint import DataEndpoint
from rl_operator.stores.readers import Readers
from rl_operator.stores.run_data import RunData
from tests.apiserver import ApiServer
from tests.contract.rl_console.world import FINISHED, LIVE, NAMESPACE
from tests.kubelet import ReaderKubelet
from tests.viewed_run import Shape, fill

SYSTEM = "rl-viewed"
"""Namespace of the operator whose endpoint it is."""
OF_OPERATOR = ("--operator-namespace", SYSTEM)
IMAGES = Images(operator="o:1", trainer="t:1", sampler="s:1", engine="e:1", pull_policy="Never")
SECRET = "rl-operator-stores"


@dataclass(frozen=True, kw_only=True)
class Viewed:
    """Stores with the runs of the live job and of the finished one, whose texts are hostile."""

    stores: Stores
    settings: StoreSettings


@contextlib.contextmanager
def serving(apiserver: ApiServer, settings: StoreSettings, folder: Path) -> Iterator[Viewed]:
    """Answer questions about the runs of ``NAMESPACE``."""
    with contextlib.closing(Stores.connect(settings, patience_seconds=20)) as stores:
        stores.mongo.ensure_indexes()
        stores.objects.make_bucket()
        for job, status in (("live", LIVE), ("finished", FINISHED)):
            run, hostile = status["runId"], job == "finished"
            fill(stores, Shape(name=run, job=job, namespace=NAMESPACE, hostile=hostile))
        lasting = {"$set": {"heartbeat_at": stores.mongo.now() + 86400}}
        stores.mongo.collection("samplers").update_many({"heartbeat_at": {"$gt": 1.0}}, lasting)
        _apply(apiserver, NAMESPACE, _secret(settings))
        with _operator(apiserver, folder):
            yield Viewed(stores=stores, settings=settings)


@contextlib.contextmanager
def _operator(apiserver: ApiServer, folder: Path) -> Iterator[None]:
    configuration = client.Configuration()
    config.load_kube_config(str(apiserver.kubeconfig), client_configuration=configuration)
    with client.ApiClient(configuration) as api:
        kubelet = ReaderKubelet(api, folder, namespace=NAMESPACE)
        kubelet.start()
        cluster = Cluster(api, may_write=lambda: None, count=lambda verb, kind: None)
        readers = Readers(
            cluster, IMAGES, system=SYSTEM, clock=time.monotonic, pod_read_seconds=0.0
        )
        endpoint = DataEndpoint(0)
        apiserver.kubectl("create", "namespace", SYSTEM)
        _publish(apiserver, endpoint.port)
        endpoint.serve(RunData(cluster, readers, clock=time.monotonic).answer)
        endpoint.start()
        yield
        endpoint.close()
        kubelet.close()


def _apply(apiserver: ApiServer, namespace: str, *items: dict[str, Any]) -> None:
    written = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    apiserver.kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(written))


def _secret(settings: StoreSettings) -> dict[str, Any]:
    values = settings.to_mapping().items()
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}


def _publish(apiserver: ApiServer, port: int) -> None:
    """The chart's Service with this machine behind it.

    The API server's proxy connects to addresses of pods alone, and to no loopback.
    """
    address, name = _own_address(), "rl-operator"
    container = {"name": "operator", "image": "o:1"}
    ports = [{"name": "data", "port": port, "protocol": "TCP"}]
    target = {"kind": "Pod", "name": name, "namespace": SYSTEM}
    subset = {"addresses": [{"ip": address, "targetRef": target}], "ports": ports}
    specs = (
        ("Pod", {"spec": {"containers": [container]}}),
        ("Service", {"spec": {"ports": ports}}),
        ("Endpoints", {"subsets": [subset]}),
    )
    items = [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **spec}
        for kind, spec in specs
    ]
    _apply(apiserver, SYSTEM, *items)
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    patch = ("patch", "pod", name, "--subresource=status", "--type=merge")
    apiserver.kubectl("-n", SYSTEM, *patch, "-p", json.dumps({"status": status}))


def _own_address() -> str:
    """The address with which this machine would reach another one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))
        return str(probe.getsockname()[0])
