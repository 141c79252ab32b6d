"""The cluster's data are restored from a backup: a standby does not lead by what it knew."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_operator.kube import kinds
from rl_operator.kube.cluster import Cluster
from tests.contract.rl_operator.processes import Process, Starter, grant, holder, trainer_kind
from tests.contract.rl_operator.world import World, a_namespace
from tests.kube import apiserver
from tests.kube.apiserver import ApiServer
from tests.servers import ROOT
from tests.waiting import until


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ApiServer]:
    """An API server of this test alone."""
    folder = tmp_path / "apiserver"
    folder.mkdir()
    with contextlib.ExitStack() as running:
        started = apiserver.start(folder, running)
        started.install(ROOT / "crds")
        trainer_kind(started)
        yield started


@pytest.fixture
def alone(own: ApiServer, stores: Stores, store_settings: StoreSettings) -> Iterator[World]:
    configuration = client.Configuration()
    config.load_kube_config(str(own.kubeconfig), client_configuration=configuration)
    with client.ApiClient(configuration) as connected:
        cluster = Cluster(connected, may_write=lambda: None, count=lambda verb, kind: None)
        yield World(
            apiserver=own,
            cluster=cluster,
            operators=cluster,
            stores=stores,
            settings=store_settings,
            namespace=a_namespace(own),
        )


@pytest.fixture
def begin(own: ApiServer, tmp_path: Path) -> Iterator[Starter]:
    starter = Starter(folder=tmp_path, kubeconfig=grant(own, tmp_path))
    yield starter
    starter.stop()


def end(process: Process) -> str:
    """What a process says that ends by itself."""
    until(process.ended, what=f"{process.identity} to end", seconds=60)
    assert process.server.process is not None
    assert process.server.process.returncode == 1
    return " ".join(process.complaints())


def test_restored_backup_ends_leader_and_standby_and_the_next_works(
    own: ApiServer, alone: World, begin: Starter, tmp_path: Path
) -> None:
    data, backup = own.folder / "etcd", tmp_path / "backup"
    begin("first").server.stop()
    kept = alone.make_job(name="kept")
    own.stop()
    shutil.copytree(data, backup)
    own.go_on()
    leader, standby = begin("leader"), begin("standby")
    until(lambda: holder(alone) == "leader", what="the first to lead")
    until(lambda: alone.condition_now(kept, "Stalled"), what="the job to be looked at")
    lost = alone.make_job(name="lost")
    until(lambda: alone.condition_now(lost, "Stalled"), what="the other one to be looked at")
    own.stop()
    shutil.rmtree(data)
    shutil.copytree(backup, data)
    own.go_on()
    assert "its data were restored from a backup" in end(standby)
    end(leader)
    begin("next")
    until(lambda: holder(alone) == "next", what="the next to lead", seconds=60)
    until(lambda: alone.condition_now(kept, "Stalled"), what="the job to be looked at again")
    assert alone.cluster.get(kinds.RLJOB, lost.namespace, lost.name) is None
