"""The init container of a sampler whose model is on the hub: it is there before the trainer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rl_contracts.documents.sampler import SamplerState
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_sampler import prepare
from rl_sampler.engine.assignment import load_assignment
from rl_sampler.policy import model
from tests.contract.rl_sampler.fork_server import ForkServer
from tests.contract.rl_sampler.pods import Pod, new_pod, new_process
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN as TRAINED
from tests.contract.rl_trainer.world import World
from tests.models.tiny_model import save_tiny
from tests.network.authority import Authority
from tests.network.hub import REPO, FakeHub, commit, files_in, serving
from tests.waiting import HUNG_SECONDS, until

URI = f"hf://{REPO}"
COMMIT, MOVED = commit("first"), commit("moved")
TRAIN = {"train": [{"name": "train", "uri": "s3://abc/train.jsonl"}]}
MakeStage = Callable[..., Pod]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    commits: dict[str, Mapping[str, bytes]] = {
        COMMIT: files_in(save_tiny(tmp_path / "tiny")),
        MOVED: files_in(save_tiny(tmp_path / "moved", seed=1)),
    }
    with serving(FakeHub(commits, {"main": COMMIT})) as served:
        yield served


@pytest.fixture
def make_stage(
    tmp_path: Path,
    hub: FakeHub,
    stores: Stores,
    store_settings: StoreSettings,
    fork_server: ForkServer,
) -> MakeStage:
    def make(name: str, **sections: Any) -> Pod:
        ours: dict[str, Any] = {
            "model": {"uri": URI},
            "data": TRAIN | {"hub": {"endpoint": hub.url}},
            "training": {"steps": 1, "precision": "FP32"},
        }
        return new_pod(
            tmp_path / name,
            engine_url="http://127.0.0.1:9",
            settings=store_settings,
            stores=stores,
            sections=ours | sections,
            run=TRAINED,
            launch=fork_server.launch,
        )

    return make


@pytest.mark.soak
def test_pods_that_start_together_ask_the_hub_once(make_stage: MakeStage, hub: FakeHub) -> None:
    pods = [make_stage(f"pod-{n}") for n in range(2)]
    logs = [pod.folder / "stage.log" for pod in pods]
    stages = [
        new_process("stage", {**os.environ, **pod.environment}, log)
        for pod, log in zip(pods, logs, strict=True)
    ]
    ended = [stage.wait(timeout=HUNG_SECONDS) for stage in stages]
    assert ended == [0, 0], [log.read_text() for log in logs]
    for pod in pods:
        assert files_in(pod.folder / "weights" / "base") == hub.commits[COMMIT]
    assert hub.read("model.safetensors") == 1
    assert hub.described == {"main": 1}


def test_trainer_and_samplers_use_the_same_commit_after_the_branch_moved(
    make_stage: MakeStage,
    hub: FakeHub,
    stores: Stores,
    store_settings: StoreSettings,
    tmp_path: Path,
) -> None:
    (tmp_path / "trainer").mkdir()
    world = World.make(tmp_path / "trainer", stores, store_settings, steps=1)
    spec = world.spec.model_dump(by_alias=True)
    spec["data"]["hub"] = {"endpoint": hub.url}
    world.spec = world.spec.model_validate(spec | {"model": {"uri": URI}})
    world.write_mounts()
    early, late = make_stage("early"), make_stage("late")
    assert early.stage().returncode == 0
    hub.branches["main"] = MOVED
    with sampling(TestSampler(stores, TRAINED)):
        assert world.attempt() == 0
    assert late.stage().returncode == 0
    world.check_lineage()  # from the very weights of the first commit
    assert world.run.base is not None
    assert world.run.base.commit == COMMIT
    for pod in (early, late):
        assert files_in(pod.folder / "weights" / "base") == hub.commits[COMMIT]
    assert hub.described == {"main": 1}


def test_hub_refusal_is_registered_until_it_is_fixed(
    make_stage: MakeStage, hub: FakeHub, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "BEAT_SECONDS", 0.1)
    pod = make_stage("pod", model={"uri": URI, "revision": "v9"})
    assignment = load_assignment(pod.environment)
    stage = threading.Thread(
        target=prepare.prepare, args=(assignment,), kwargs={"stores": stores}, daemon=True
    )
    stage.start()
    (sampler,) = until(lambda: stores.samplers.of_run(TRAINED), what="a registration")
    (refusal,) = sampler.refusals
    assert (sampler.state, sampler.scorers) == (SamplerState.STARTING, [])
    assert (refusal.field, refusal.value) == ("spec.model.uri", f"{URI}@v9")
    assert refusal.reason == "ModelNotFound"
    hub.branches["v9"] = COMMIT
    stage.join(HUNG_SECONDS)
    assert files_in(assignment.weights.base) == hub.commits[COMMIT]
    assert stores.samplers.of_run(TRAINED) == [], "the agent registers anew"


def test_hub_may_have_its_own_certificate_authority(
    make_stage: MakeStage, hub: FakeHub, tmp_path: Path
) -> None:
    authority = Authority()
    (tmp_path / "ca.crt").write_text(authority.pem)
    own = FakeHub(hub.commits, hub.branches)
    with serving(own, context=authority.context(tmp_path / "tls")):
        pod = make_stage("pod", data=TRAIN | {"hub": {"endpoint": own.url}})
        pod.environment["SSL_CERT_FILE"] = str(tmp_path / "ca.crt")
        done = pod.stage()
    assert done.returncode == 0, done.stderr
    assert files_in(pod.folder / "weights" / "base") == hub.commits[COMMIT]
    assert own.url.startswith("https://")


def test_staged_model_is_not_requested_again(make_stage: MakeStage, hub: FakeHub) -> None:
    pod = make_stage("pod")
    assert pod.stage().returncode == 0
    asked = len(hub.requests)
    hub.failures = 1000
    assert pod.stage().returncode == 0
    assert len(hub.requests) == asked


def test_model_in_a_bucket_needs_no_request_to_the_hub(
    make_stage: MakeStage, hub: FakeHub, stores: Stores
) -> None:
    for name, data in hub.commits[COMMIT].items():
        stores.objects.put(f"{stores.objects.prefix}tiny/{name}", data)
    pod = make_stage("pod", model={"uri": stores.objects.uri(f"{stores.objects.prefix}tiny")})
    assert pod.stage().returncode == 0
    assert files_in(pod.folder / "weights" / "base") == hub.commits[COMMIT]
    assert hub.requests == []
