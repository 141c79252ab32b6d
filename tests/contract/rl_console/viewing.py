"""The operator's endpoint for viewers behind the API server's proxy, with runs in real stores."""

from __future__ import annotations

import base64
import contextlib
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
from tests.contract.rl_console.world import FINISHED, LIVE, NAMESPACE
from tests.kube.apiserver import ApiServer, apply
from tests.kube.kubelet import ReaderKubelet
from tests.kube.published import publish_operator
from tests.samples.viewed_run import Shape, fill

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
        assert not apply(apiserver, _secret(settings), "-n", NAMESPACE)
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
        publish_operator(apiserver, SYSTEM, endpoint.port)
        endpoint.serve(RunData(cluster, readers, clock=time.monotonic).answer)
        endpoint.start()
        yield
        endpoint.close()
        kubelet.close()


def _secret(settings: StoreSettings) -> dict[str, Any]:
    values = settings.to_mapping().items()
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}
