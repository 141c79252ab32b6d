"""Two pods train a vision-language model: each reads the images of its own share."""

from __future__ import annotations

import torch
from safetensors.torch import load_file

from rl_trainer.attempt import SUCCEEDED
from tests.contract.rl_trainer.conftest import MakeWorld, make_world
from tests.contract.rl_trainer.distributed.test_team import codes, two_pods
from tests.contract.rl_trainer.runs.test_images import PER_STEP, STEPS, seeing

__all__ = ["make_world"]


def test_two_pods_train_on_images_of_the_bucket(make_world: MakeWorld) -> None:
    world = seeing(make_world(steps=STEPS, promptsPerStep=PER_STEP, promptsPerUpdate=PER_STEP))
    with two_pods(world) as pair:
        assert codes(pair) == [SUCCEEDED, SUCCEEDED], world.outcome
    final, before = world.final_weights(), load_file(world.folder / "seeing/model.safetensors")
    assert final.keys() == before.keys()
    moved = {name for name in before if not torch.equal(before[name], final[name])}
    assert any(name.startswith("model.layers.") for name in moved)
    assert not [name for name in moved if name.startswith("visual.")]
