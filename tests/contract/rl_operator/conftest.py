from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_operator.processes import Starter, grant, trainer_kind
from tests.contract.rl_operator.reconciling import IMAGES, RULES
from tests.contract.rl_operator.viewing import Viewing, answered
from tests.contract.rl_operator.world import WORLD_SYSTEM, World
from tests.contract.rl_operator.worlds import Servers, a_world
from tests.kube.apiserver import ApiServer
from tests.kube.kubelet import ReaderKubelet


@pytest.fixture(scope="session")
def with_trainer_kind(apiserver: ApiServer) -> ApiServer:
    trainer_kind(apiserver)
    return apiserver


@pytest.fixture(scope="session")
def rights(with_trainer_kind: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig of the operator's service account, with the chart's rights and no others."""
    return grant(with_trainer_kind, tmp_path_factory.mktemp("rights"))


@pytest.fixture
def start(rights: Path, tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(folder=tmp_path, kubeconfig=rights)
    yield starter
    starter.stop()


@pytest.fixture(scope="session")
def api(apiserver: ApiServer) -> Iterator[client.ApiClient]:
    configuration = client.Configuration()
    config.load_kube_config(str(apiserver.kubeconfig), client_configuration=configuration)
    with client.ApiClient(configuration) as connected:
        yield connected


@pytest.fixture(scope="session")
def kubelet(
    with_trainer_kind: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReaderKubelet]:
    """Plays the kubelet for the pods that read stores."""
    configuration = client.Configuration()
    config.load_kube_config(str(with_trainer_kind.kubeconfig), client_configuration=configuration)
    with client.ApiClient(configuration) as connected:
        made = ReaderKubelet(connected, tmp_path_factory.mktemp("kubelet"))
        made.start()
        yield made
        made.close()


@pytest.fixture(scope="session")
def operators_api(
    with_trainer_kind: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[client.ApiClient]:
    """Authenticated as the operator, so that the chart's policy admits whatever it writes."""
    values = (
        "kueue.enabled=true",
        "agentSandbox.enabled=true",
        f"images.operator={IMAGES.operator}",
        f"pods.serviceAccounts={{{','.join(RULES.service_accounts)}}}",
    )
    granted = grant(
        with_trainer_kind, tmp_path_factory.mktemp("operator"), *values, system=WORLD_SYSTEM
    )
    configuration = client.Configuration()
    config.load_kube_config(str(granted), client_configuration=configuration)
    with client.ApiClient(configuration) as connected:
        yield connected


@pytest.fixture(scope="session")
def servers(
    with_trainer_kind: ApiServer,
    kubelet: ReaderKubelet,
    api: client.ApiClient,
    operators_api: client.ApiClient,
) -> Servers:
    return Servers(with_trainer_kind, api, operators_api)


@pytest.fixture
def world(servers: Servers, stores: Stores, store_settings: StoreSettings) -> Iterator[World]:
    with a_world(servers, stores, store_settings) as made:
        yield made


@pytest.fixture
def viewing(world: World) -> Iterator[Viewing]:
    with answered(world) as made:
        yield made
