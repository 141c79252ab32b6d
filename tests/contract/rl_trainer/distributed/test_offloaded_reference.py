"""A reference in host memory, as FSDP2 keeps it there, beside a policy that stays on the device.

Without a GPU nothing moves; what FSDP2 is told, and every number, is as with one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model.learner import Learner
from tests.contract.rl_trainer.distributed import ranks
from tests.contract.rl_trainer.distributed.test_offloaded_parameters import offload_flags
from tests.models import states
from tests.models.tiny_model import save_tiny

STEPS = 3
CASES: dict[str, dict[str, Any]] = {
    "sampled tokens": {"algorithm": {"kl": {"coefficient": 0.5}}},
    "whole distributions, refreshed": {
        "algorithm": {"kl": {"estimator": "Full", "coefficient": 0.5, "refreshEverySteps": 2}}
    },
    "in the reward": {"algorithm": {"kl": {"placement": "Reward"}}},
    "a teacher": {"algorithm": {"objective": "Distillation", "teacher": "s3://models/teacher"}},
}


def learner(folder: Path, world: World, sections: dict[str, Any], *, offload: bool) -> Learner:
    training = {"maxTokensPerMicrobatch": 32, "offloadReference": offload}
    made = ranks.learner(folder, world, **sections, training=training)
    reference = made.models.reference
    assert reference is not None
    flags = offload_flags(made.policy.module)
    assert not any(flags), "the policy stays on the device"
    assert offload_flags(reference.policy.module) == ({offload} if offload else flags)
    return made


def train(world: World, folder: Path) -> None:
    """Every number is the same to the last bit, refreshed references in checkpoints included."""
    for name, sections in CASES.items():
        for each in (world, ALONE) if world.size == 1 else (world,):
            plain, aside = (learner(folder, each, sections, offload=flag) for flag in (False, True))
            divergences = []
            for step in range(1, STEPS + 1):
                samples = ranks.samples(seed=step)
                first, other = plain.update(samples, step=step), aside.update(samples, step=step)
                assert (first.loss, first.kl) == (other.loss, other.kl), name
                divergences.append(first.kl)
            assert any(divergences), name
            for tensors, others in (
                (ranks.weights(plain), ranks.weights(aside)),
                [states.whole(learned.auxiliary(), each) for learned in (plain, aside)],
            ):
                assert tensors.keys() == others.keys()
                assert all(torch.equal(others[key], value) for key, value in tensors.items()), name
            aside.restore_auxiliary(states.stored(states.whole(plain.auxiliary(), each)))


@pytest.mark.soak
@pytest.mark.parametrize("size", [1, 2])
def test_an_offloaded_reference_changes_no_number(size: int, tmp_path: Path) -> None:
    tiny, scratch = save_tiny(tmp_path / "tiny", intermediate_size=49), tmp_path / "scratch"
    scratch.mkdir()
    ranks.together(train, size=size, folder=tiny, scratch=scratch)
