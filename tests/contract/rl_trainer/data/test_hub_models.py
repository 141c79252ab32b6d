"""The final model is written to a repository of the hub as well."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd

from rl_contracts import env
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_trainer.checkpoint import hub_models
from rl_trainer.distributed.team import Team
from tests.contract.rl_trainer.durability.crash import Crashed, crashing_at
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.network.model_hub import ModelHub, serving

REPOSITORY = "org/sums"
TOKEN = "hf_verysecret"
UNPINGED_SECONDS = 5.0
"""Only a push that pings nobody waits for so long."""


@dataclass
class HubWorld(World):
    """A trainer that is given a token."""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {env.HUB_TOKEN_FILE: str(self.folder / "token")}


@pytest.fixture
def hub() -> Iterator[ModelHub]:
    with serving(ModelHub(token=TOKEN)) as served:
        yield served


@pytest.fixture
def world(hub: ModelHub, stores: Stores, store_settings: StoreSettings, tmp_path: Path) -> HubWorld:
    world = HubWorld.make(
        tmp_path,
        stores,
        store_settings,
        steps=2,
        checkpoint={"exportEverySteps": 1, "hubRepo": REPOSITORY},
    )
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    spec = world.spec.model_dump(by_alias=True)
    spec["data"]["hub"] = {"endpoint": hub.url, "tokenSecretRef": {"name": "hub"}}
    world.spec = world.spec.model_validate(spec)
    world.write_mounts()
    return world


def test_the_final_model_is_pushed_once_over_faults(
    hub: ModelHub, world: HubWorld, monkeypatch: pytest.MonkeyPatch, advanced: Counter[str]
) -> None:
    hub.failures = 1
    with sampling(TestSampler(world.stores, RUN)):
        place = f"pushing the final model to {REPOSITORY}"
        with crashing_at(place, monkeypatch), pytest.raises(Crashed):
            world.attempt()
        assert hub.private == {REPOSITORY: True}
        assert hub.files == {REPOSITORY: {}}, "nothing but the end of a run is pushed"
        hub.failures = 1
        assert world.attempt() == 0
    final = f"{world.stores.run_prefix(RUN)}final/{world.run.epoch}/"
    kept = {
        stored_object.key.removeprefix(final) for stored_object in world.stores.objects.list(final)
    }
    assert set(hub.files[REPOSITORY]) == kept - {"manifest.json"}
    for name, content in hub.files[REPOSITORY].items():
        assert content == world.stores.objects.get(f"{final}{name}"), name
        assert TOKEN.encode() not in content
    assert hub.commits == [f"Run {RUN}: 2 steps"]
    files = len(hub.files[REPOSITORY])
    # Each file that is fetched from the bucket, and each that is sent.
    assert (advanced["download"], advanced["_uploaded"]) == (files, files)


def test_other_ranks_are_pinged_while_a_file_is_pushed(
    hub: ModelHub, world: HubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push may take longer than ranks wait for a command."""
    waiting, pinged = threading.Event(), threading.Event()

    def ping(_: Team) -> None:
        if waiting.is_set():
            pinged.set()

    def uploading() -> None:
        waiting.set()
        pinged.wait(UNPINGED_SECONDS)

    monkeypatch.setattr(Team, "check", ping)
    hub.uploading = uploading
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    assert pinged.is_set()
    assert hub.commits == [f"Run {RUN}: 2 steps"]


def test_sigterm_ends_a_push_and_the_next_attempt_pushes_again(
    hub: ModelHub, world: HubWorld
) -> None:
    terminated = threading.Event()
    hub.uploading = terminated.set
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt(terminated) == 143
        assert (world.run.step, world.run.outcome, hub.commits) == (2, None, [])
        hub.uploading = bool
        assert world.attempt() == 0
    assert world.outcome.kind == "Succeeded"
    assert hub.commits == [f"Run {RUN}: 2 steps"]
    assert "model.safetensors" in hub.files[REPOSITORY]


def test_sigterm_between_the_last_upload_and_the_commit_ends_a_push(
    hub: ModelHub, world: HubWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminated, uploaded = threading.Event(), hub_models._uploaded

    def terminate(*args: Any) -> list[CommitOperationAdd]:
        added = uploaded(*args)
        terminated.set()
        return added

    monkeypatch.setattr(hub_models, "_uploaded", terminate)
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt(terminated) == 143
    assert hub.commits == []


def test_a_token_without_write_access_is_refused_before_training(
    hub: ModelHub, world: HubWorld
) -> None:
    hub.token = "another"
    assert world.attempt() == 2
    outcome = world.outcome
    assert outcome.field == "spec.training.checkpoint.hubRepo"
    assert outcome.reason == "HubAccessDenied"
    assert "HTTP 403: this token may not write" in outcome.message
    assert TOKEN not in outcome.model_dump_json()
    assert world.run.step == 0
