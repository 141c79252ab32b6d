"""Runs of a model on a private hub of the machine; it is away as soon as the bucket has the model.

| row | who brings the model | what happens then |
|---|---|---|
| sampled | a sampler's init container, once the tag is there | the sampler's pod is deleted |
| taught | the trainer: there is no sampler | the trainer exits 42 |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import pytest

from rl_contracts.documents.run import RunBase
from tests.chaos.operator_cluster.jobs import (
    COMPLETE_SECONDS,
    CRASHED,
    TRAINED,
    attempts,
    await_gone,
    await_phase,
    await_step,
    order,
    taught_job,
)
from tests.cluster.lab import Lab, RunReader
from tests.cluster.manifests import short_job
from tests.cluster.waiting import until
from tests.network.hub import REPO, FakeHub, commit, serving

pytestmark = pytest.mark.timeout(2 * COMPLETE_SECONDS)
SAMPLED, TAUGHT = "hub-sampled", "hub-taught"
EXAMPLE_MODEL = "models/arithmetic/"
URI, TAG, COMMIT = f"hf://{REPO}", "v1", commit("first")
TOKEN = "hf_of-a-private-hub"
SECRET = {"name": "private-hub", "key": "token"}
STEPS = 30
"""More than are made while a pod is deleted, or a trainer terminates."""


class Hub:
    """The hub on the address of the only node, where pods reach it, until it is stopped."""

    def __init__(self, lab: Lab) -> None:
        (node,) = lab.get("nodes")["items"]
        addresses = node["status"]["addresses"]
        self._address = next(
            address["address"] for address in addresses if address["type"] == "InternalIP"
        )
        with lab.stores() as stores:
            listed = stores.objects.list(EXAMPLE_MODEL)
            self.files = {
                PurePosixPath(stat.key).name: stores.objects.get(stat.key) for stat in listed
            }
        self.server = FakeHub({COMMIT: self.files}, {}, token=TOKEN)
        self._open = contextlib.ExitStack()

    def start(self) -> None:
        self._open.enter_context(serving(self.server, host=self._address))

    def stop(self) -> None:
        self._open.close()

    def named(self) -> dict[str, Any]:
        """Changes of a manifest that take the model from there."""
        hub = {"endpoint": self.server.url, "tokenSecretRef": SECRET, "allowPlainHttp": True}
        return {"model": {"uri": URI, "revision": TAG}, "data__hub": hub}

    @property
    def folder(self) -> str:
        """Of the commit in the bucket, below the namespace's prefix."""
        host = self.server.url.removeprefix("http://").replace(":", "-")
        return f"models/{host}/{REPO}/{COMMIT}/model/"


@pytest.fixture
def hub(lab: Lab) -> Iterator[Hub]:
    """It shows nothing without the token; in the end all that was made of it goes."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET["name"]}}
    lab.apply(secret | {"stringData": {SECRET["key"]: TOKEN}})
    hub = Hub(lab)
    hub.start()
    yield hub
    hub.stop()
    jobs = {
        item["metadata"]["name"]: item["metadata"]["uid"] for item in lab.get("rljobs")["items"]
    }
    await_gone(lab, {name: uid for name, uid in jobs.items() if name in (SAMPLED, TAUGHT)})
    lab.delete("secret", SECRET["name"])
    with lab.stores() as stores:
        stores.objects.delete_prefix(stores.objects.prefix + hub.folder)


def check_commit(lab: Lab, hub: Hub, job: str) -> None:
    """The bucket holds the commit's files, each read once and only with the token."""
    status = lab.job(job).status
    assert status.model_commit == COMMIT
    with lab.stores() as stores:
        run = stores.runs.get(status.run_id)
        prefix = stores.objects.prefix + hub.folder
        keys = [stored_object.key for stored_object in stores.objects.list(prefix)]
        held = {key.removeprefix(prefix): stores.objects.get(key) for key in keys}
    assert run is not None
    assert run.base == RunBase(uri=URI, commit=COMMIT)
    (_,) = [held.pop(name) for name in sorted(held) if name.startswith("files-")]
    assert held == hub.files
    assert hub.server.read("model.safetensors") == 1
    assert {authorization for _, _, authorization in hub.server.requests} == {f"Bearer {TOKEN}"}


def served(lab: Lab, run: str) -> set[str]:
    """Names of pods that have served a policy."""
    with lab.stores() as stores:
        return {sampler.pod for sampler in stores.samplers.of_run(run) if sampler.version > 0}


def test_replaced_sampler_starts_while_the_hub_is_down(lab: Lab, hub: Hub) -> None:
    lab.apply(short_job(SAMPLED, training__steps=STEPS, **hub.named()))
    stalled = lab.await_condition(SAMPLED, "Stalled")
    assert stalled.reason == "ModelNotFound"
    assert f"spec.model.uri = '{URI}@{TAG}'" in stalled.message
    assert f"{hub.server.url}/{REPO} has no revision '{TAG}'" in stalled.message
    hub.server.branches[TAG] = COMMIT
    with contextlib.closing(RunReader(lab, lab.job(SAMPLED).uid)) as reader:
        reader.await_step(1, seconds=COMPLETE_SECONDS)
    hub.stop()
    (first,) = [pod.name for pod in lab.pods(SAMPLED) if pod.role == "sampler"]
    lab.kubectl("delete", "pod", first, "--wait=false")
    run = lab.job(SAMPLED).uid
    until(
        lambda: served(lab, run) - {first},
        what="another sampler",
        seconds=COMPLETE_SECONDS,
        seen=lambda: lab.pods(SAMPLED),
    )
    lab.await_condition(SAMPLED, "Complete", seconds=COMPLETE_SECONDS)
    assert attempts(lab.job(SAMPLED).status) == [TRAINED]
    check_commit(lab, hub, SAMPLED)


def test_restarted_trainer_starts_while_the_hub_is_down(lab: Lab, hub: Hub) -> None:
    hub.server.branches[TAG] = COMMIT
    lab.apply(taught_job(TAUGHT, training__steps=STEPS, **hub.named()))
    await_step(lab, TAUGHT, 1)
    hub.stop()
    order(lab, TAUGHT, "exit:42")
    await_phase(lab, TAUGHT, "Succeeded")
    assert attempts(lab.job(TAUGHT).status) == [CRASHED, TRAINED]
    check_commit(lab, hub, TAUGHT)
