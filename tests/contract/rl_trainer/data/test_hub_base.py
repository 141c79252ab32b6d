"""A run of a model of the hub: every attempt trains what the first one began with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rl_contracts import env
from rl_contracts.documents.run import RunBase
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_trainer.durability.crash import Crashed, crashing_at
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.models.tiny_model import save_tiny
from tests.network.hub import REPO, FakeHub, commit, files_in, serving

URI = f"hf://{REPO}"
OLD, NEW = commit("old"), commit("new")
TOKEN = "hf_verysecret"


@dataclass
class HubWorld(World):
    """A trainer that is given a token."""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {env.HUB_TOKEN_FILE: str(self.folder / "token")}

    def name(self, hub: FakeHub, **model: Any) -> None:
        """Write a manifest that names the hub."""
        spec = self.spec.model_dump(by_alias=True)
        spec["data"]["hub"] = {"endpoint": hub.url, "tokenSecretRef": {"name": "hub"}}
        self.spec = self.spec.model_validate(spec | {"model": {"uri": URI} | model})
        self.write_mounts()


@pytest.fixture
def world(stores: Stores, store_settings: StoreSettings, tmp_path: Path) -> HubWorld:
    world = HubWorld.make(tmp_path, stores, store_settings, steps=2)
    stores.objects.delete_prefix(f"{stores.objects.prefix}model/")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    return world


@pytest.fixture
def hub(world: HubWorld, tmp_path: Path) -> Iterator[FakeHub]:
    other = files_in(save_tiny(tmp_path / "other", seed=1))
    commits: dict[str, Mapping[str, bytes]] = {OLD: files_in(world.folder / "model"), NEW: other}
    with serving(FakeHub(commits, {"main": OLD, "v2": NEW}, token=TOKEN)) as served:
        world.name(served)
        yield served


def test_a_run_keeps_its_commit_when_the_branch_moves(
    world: HubWorld, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sampling(TestSampler(world.stores, RUN)):
        with crashing_at("training: step 2", monkeypatch), pytest.raises(Crashed):
            world.attempt()
        assert world.run.base == RunBase(uri=URI, commit=OLD)
        hub.branches["main"] = NEW
        asked = len(hub.requests)
        assert world.attempt() == 0
        assert len(hub.requests) == asked, "the hub may be away by now"
    assert hub.described == {"main": 1}
    world.check_lineage()
    card = world.get(f"final/{world.run.epoch}/README.md").decode()
    assert f"`{URI}` at `{OLD}`" in card
    assert TOKEN not in card


def test_a_run_refuses_another_model_commit(
    world: HubWorld, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with crashing_at("waiting for rollouts", monkeypatch), pytest.raises(Crashed):
        world.attempt()
    world.name(hub, revision="v2")  # as a job may that adopts a run
    assert world.attempt() == 2
    assert (world.outcome.field, world.outcome.reason) == ("spec.model.uri", "ModelChanged")
    assert OLD in world.outcome.message
    assert NEW in world.outcome.message


@pytest.mark.parametrize(
    ("model", "reason"),
    [({"revision": "v9"}, "ModelNotFound"), ({"uri": "hf://org/nobody"}, "ModelNotFound")],
)
def test_a_model_missing_on_the_hub_is_refused_before_training(
    world: HubWorld, hub: FakeHub, model: dict[str, str], reason: str
) -> None:
    world.name(hub, **model)
    assert world.attempt() == 2
    assert (world.outcome.field, world.outcome.reason) == ("spec.model.uri", reason)
    assert TOKEN not in world.outcome.model_dump_json()
    assert world.run.base is None
