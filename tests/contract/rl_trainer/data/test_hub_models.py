"""The final model is written to a repository of the hub as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rl_contracts import env
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_trainer.durability.crash import Crashed, crashing_at
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.network.model_hub import ModelHub, serving

REPOSITORY = "org/sums"
TOKEN = "hf_verysecret"


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
