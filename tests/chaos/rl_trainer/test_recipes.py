"""Each recipe of the examples trains two steps with the tiny model."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rl_contracts.documents.step_metrics import StepMetrics
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.models.tiny_model import save_tiny
from tests.samples.recipes import RECIPES, merged, recipe


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_trains_two_steps(
    stores: Stores, store_settings: StoreSettings, tmp_path: Path, name: str
) -> None:
    world = World.make(tmp_path, stores, store_settings, steps=2)
    objects = world.stores.objects
    for path in save_tiny(world.folder / "teacher", seed=5).iterdir():
        objects.put_file(f"{objects.prefix}teacher/{path.name}", path)
    given = world.spec.model_dump(by_alias=True)
    given["algorithm"] = {}
    patched = merged({"spec": given}, recipe(name))["spec"]
    if "teacher" in patched["algorithm"]:
        patched["algorithm"]["teacher"] = f"s3://{objects.bucket}/{objects.prefix}teacher"
    world.spec = world.spec.model_validate(patched)
    world.write_mounts()
    with sampling(TestSampler(world.stores, RUN)):
        assert world.attempt() == 0
    assert world.run.step == 2
    world.check_lineage()
    lines = world.newest("metrics.jsonl").decode().splitlines()
    steps = [StepMetrics.model_validate_json(line) for line in lines]
    assert all(math.isfinite(step.loss) and step.gradient_norm >= 0 for step in steps)
