"""Agents as processes that relay; no engine is needed to hand policies on."""

from __future__ import annotations

from pathlib import Path

import pytest
import urllib3

from rl_contracts import env
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.pods import Pod, new_pod, start_run
from tests.contract.rl_sampler.scripted_trainer import ScriptedTrainer
from tests.servers import deaf_port, free_port
from tests.waiting import until


@pytest.fixture
def trainer(stores: Stores, tiny_model: Path) -> ScriptedTrainer:
    return start_run(stores, tiny_model)


def relaying_pod(
    folder: Path, settings: StoreSettings, stores: Stores, fork_server: ForkServer
) -> Pod:
    sections = {"weightSync": {"transport": {"relay": True}}}
    nowhere = f"http://127.0.0.1:{deaf_port()}"
    pod = new_pod(
        folder,
        engine_url=nowhere,
        settings=settings,
        stores=stores,
        sections=sections,
        launch=fork_server.launch,
    )
    pod.environment |= {env.RELAY_PORT: str(free_port()), env.POD_IP: "127.0.0.1"}
    return pod


def test_new_pod_downloads_a_policy_from_a_peer(
    trainer: ScriptedTrainer,
    stores: Stores,
    store_settings: StoreSettings,
    fork_server: ForkServer,
    tmp_path: Path,
) -> None:
    first = relaying_pod(tmp_path / "pod-a", store_settings, stores, fork_server)
    second = relaying_pod(tmp_path / "pod-b", store_settings, stores, fork_server)
    assert first.stage().returncode == 0
    pointer = trainer.publish(seed=1)
    first.serve()
    try:
        url = f"http://127.0.0.1:{first.environment[env.RELAY_PORT]}"
        assert (
            first.wait_document(lambda document: bool(document.relay_url), what="address").relay_url
            == url
        )
        name = pointer.prefix.rstrip("/").rsplit("/", 1)[-1]
        token = stores.objects.shared_token(f"relay/{trainer.run}")

        def handed_out() -> bool:
            with urllib3.PoolManager(retries=False) as http:
                asked = http.request(
                    "HEAD",
                    f"{url}/policies/{name}/manifest.json",
                    headers={"Authorization": f"Bearer {token}"},
                )
            return asked.status == 200

        until(handed_out, what="the first pod to hand version 1 out")
        stores.objects.delete_prefix(pointer.prefix)

        def started() -> bool:
            assert second.stage().returncode == 0
            return (second.folder / "weights" / "policies" / name / "model.safetensors").is_file()

        until(started, what="the second pod to take version 1 from the first")
    finally:
        first.signal(9)
