"""Parameters, gradients and moments in host memory, as FSDP2 keeps them there.

Without a GPU its policy moves nothing; what it is told, and all that reads and writes the parts of
parameters, runs here as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from rl_trainer.distributed.world import World
from rl_trainer.model import loading, memory, weights
from rl_trainer.model.learner import Learner
from rl_trainer.model.policy import Policy
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.distributed import ranks
from tests.contract.rl_trainer.durability.crash import Crashed, crashing_at
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN
from tests.examples import first
from tests.models import states
from tests.models.tiny_model import save_tiny

SMALL: dict[str, Any] = {"maxTokensPerMicrobatch": 32, "gradientCheckpointing": True}
CASES: dict[str, dict[str, Any]] = {
    "all weights, critic and reference": {
        "training": {**SMALL, "promptsPerUpdate": 2, "precision": "BF16"},
        "algorithm": {
            "estimator": {"kind": "GAE"},
            "critic": {"valueClip": 0.2},
            "kl": {"estimator": "Full", "refreshEverySteps": 1},
        },
    },
    "adapters beside quantized weights": {
        "training": {**SMALL, "lora": {"rank": 3, "quantization": "Int8"}},
        "algorithm": {"kl": {}},
    },
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Odd widths: parts of unequal size on each rank, empty ones among them.
    return save_tiny(tmp_path_factory.mktemp("tiny"), num_hidden_layers=1, intermediate_size=49)


def learner(folder: Path, world: World, sections: dict[str, Any], *, offload: bool) -> Learner:
    training = {**sections["training"], "offloadParameters": offload}
    made = ranks.learner(folder, world, **{**sections, "training": training})
    models = made.models
    divided = [models.policy, *([models.reference.policy] if models.reference else [])]
    assert all(offload_flags(policy.module) == {offload} for policy in divided)
    if models.critic is not None:
        assert offload_flags(models.critic._module) == {offload}
    return made


def offload_flags(module: torch.nn.Module) -> set[bool]:
    """Whether FSDP2 keeps parameters in host memory, as set for each parameter."""
    divided = [part for part in module.modules() if isinstance(part, FSDPModule)]
    groups = [group for part in divided for group in part._get_fsdp_state()._fsdp_param_groups]
    return {parameter.offload_to_cpu for group in groups for parameter in group.fsdp_params}


def train(world: World, folder: Path) -> None:
    """Every number is the same to the last bit, whichever side a checkpoint is of."""
    for name, sections in CASES.items():
        plain, aside = (learner(folder, world, sections, offload=flag) for flag in (False, True))
        updates = [each.update(ranks.samples(seed=1), step=1) for each in (plain, aside)]
        assert updates[0].loss == updates[1].loss, name
        assert updates[0].gradient_norm == updates[1].gradient_norm, name
        ranks.check_same(ranks.gradients(plain), ranks.gradients(aside), name)
        kept = [states.state(each) for each in (plain, aside)]
        ranks.check_same(kept[0], kept[1], f"{name}, state")
        check_published(plain.policy, aside.policy, world, name)
        others = [
            ranks.resumed(learner(folder, world, sections, offload=it), state)
            for it, state in zip((True, False), kept, strict=True)
        ]
        for each in (plain, aside, *others):
            each.update(ranks.samples(seed=2), step=2)
        for other in (aside, *others):
            ranks.check_same(ranks.weights(plain), ranks.weights(other), name)


def check_published(plain: Policy, aside: Policy, world: World, name: str) -> None:
    for take in (weights.own_tensors, weights.snapshot):
        first, other = (take(it, precision="BF16", world=world) for it in (plain, aside))
        ranks.check_same(first, other, f"{name}, published")


@pytest.mark.parametrize("size", first(1, [1, 2]))
def test_offloaded_parameters_change_no_number(size: int, tiny: Path, tmp_path: Path) -> None:
    ranks.together(train, size=size, folder=tiny, scratch=tmp_path)


@pytest.mark.parametrize(("option", "place"), [("offload_parameters", "cpu"), ("divided", "meta")])
def test_a_device_never_holds_a_model_that_is_to_be_divided(
    option: str, place: str, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Host memory does; not even that where processes divide it."""
    monkeypatch.setattr(loading, "device", lambda: torch.device("cuda"))
    asked: dict[str, Any] = {option: True}
    policy = loading.load(tiny, precision="BF16", uri="s3://models/tiny", **asked)
    assert policy.device.type == "cuda"
    assert {parameter.device.type for parameter in policy.parameters().values()} == {place}


@pytest.fixture
def _as_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The option is refused without one; the process makes a group of its own for it."""
    monkeypatch.setattr(memory, "check", lambda *_, **__: None)
    yield
    dist.destroy_process_group()


@pytest.mark.soak
@pytest.mark.usefixtures("_as_with_a_gpu")
def test_a_killed_attempt_goes_on_bit_for_bit(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(steps=5, checkpoint={"everySteps": 2}, offloadParameters=True)
    with sampling(TestSampler(world.stores, RUN)):
        with pytest.raises(Crashed), crashing_at("training: step 4", monkeypatch):
            world.attempt()
        assert world.attempt() == 0
    assert world.run.trainers == 2
    world.check_lineage()
