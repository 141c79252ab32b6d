"""Models whose parts four processes read from the files: what each gets, and what all refuse."""

from __future__ import annotations

import gc
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rl_contracts.errors import RefusedError
from rl_contracts.spec.parallelism import MeshSizes
from rl_contracts.spec.resources import RLJobSpec
from rl_trainer.algorithm.vocabulary import WHOLE
from rl_trainer.distributed.world import World
from rl_trainer.model import loading, models, weights
from rl_trainer.model.learner import Learner
from rl_trainer.model.parallel import on_mesh
from tests.contract.rl_trainer.distributed import parity, ranks
from tests.models import states

BROKEN = "model.layers.0.mlp.up_proj.weight"
LORA = {"lora": {"rank": 2, "targets": parity.ATTENTION}}


def saved(folder: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = load_file(folder / "model.safetensors")
    return tensors


def exported(learner: Learner, world: World) -> dict[str, Tensor]:
    return weights.snapshot(learner.policy, precision="FP32", world=world)


def few_experts(world: World, folder: Path) -> dict[str, Tensor]:
    """Some ranks hold none of the two experts."""
    return exported(ranks.learner(folder, world, training={"precision": "FP32"}), world)


@pytest.mark.soak
def test_ranks_that_hold_no_expert_load_as_the_others(tmp_path: Path) -> None:
    folder = parity.save_model("mixture", tmp_path / "model", num_experts=2, num_experts_per_tok=1)
    (tmp_path / "scratch").mkdir()
    first, *_ = ranks.together(few_experts, size=4, folder=folder, scratch=tmp_path / "scratch")
    assert parity.largest(first, saved(folder)) == 0


def frozen_in_bfloat16(world: World, folder: Path) -> tuple[dict[str, Tensor], float]:
    """Its proof runs in float32; then a step in bfloat16."""
    learner = ranks.learner(folder, world, training={"precision": "BF16", **LORA})
    dtypes = {each.dtype for each in learner.policy.module.parameters()}
    assert dtypes == {torch.float32, torch.bfloat16}
    assert learner.policy.vocabulary_part != WHOLE
    return exported(learner, world), learner.update(ranks.samples(seed=1), step=1).loss


@pytest.mark.soak
def test_a_frozen_model_is_proven_in_float32_and_trained_in_bfloat16(tmp_path: Path) -> None:
    folder = parity.save_model("untied", tmp_path / "model")
    (tmp_path / "scratch").mkdir()
    (whole, loss), *others = ranks.together(
        frozen_in_bfloat16,
        mesh=MeshSizes(fsdp=2, tp=2),
        folder=folder,
        scratch=tmp_path / "scratch",
    )
    wanted = {name: tensor.bfloat16().float() for name, tensor in saved(folder).items()}
    assert parity.largest(whole, wanted) == 0
    assert math.isfinite(loss)
    assert {other for _, other in others} == {loss}


def everything(world: World, folder: Path) -> dict[str, dict[str, Tensor]]:
    """Policy, teacher and a critic of its own model, all of which lie on meta before."""
    spec = RLJobSpec.model_validate(
        ranks.SPEC
        | {
            "training": {"steps": 3, "precision": "FP32"},
            "algorithm": {
                "objective": "Distillation",
                "teacher": "s3://models/teacher",
            },
        }
    )

    def load(name: str) -> Any:
        return loading.load(folder / name, precision="FP32", uri=parity.URI, divided=True)

    built = models.build(
        load("policy"), spec, critic=None, teacher=load("teacher"), adapter=None, world=world
    )
    assert built.reference is not None
    held = {"policy": built.policy, "teacher": built.reference.policy}
    return {
        name: weights.snapshot(each, precision="FP32", world=world) for name, each in held.items()
    }


def alive() -> int:
    """Language models in this process."""
    return sum(type(each).__name__.endswith("ForCausalLM") for each in gc.get_objects())


def with_critic(world: World, folder: Path) -> dict[str, Tensor]:
    """A critic's layers come from its own files, and its head predicts nothing.

    What was loaded to try the critic's model is gone: the policy and that model itself are left.
    """
    spec = RLJobSpec.model_validate(
        ranks.SPEC
        | {
            "training": {"steps": 3, "precision": "FP32"},
            "algorithm": {
                "estimator": {"kind": "GAE"},
                "critic": {"model": {"uri": "s3://models/critic"}},
            },
        }
    )
    gc.collect()
    gc.disable()  # it would hide what only a later collection lets go
    before = alive()
    policy, critic = (
        loading.load(folder / name, precision="FP32", uri=parity.URI, divided=True)
        for name in ("policy", "teacher")
    )
    built = models.build(policy, spec, critic=critic, teacher=None, adapter=None, world=world)
    assert built.critic is not None
    assert alive() == before + 2
    gc.enable()
    named = built.critic.state().items()
    weights = {name: tensor for name, tensor in named if name.startswith("weights/")}
    return states.whole(weights, world)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two models of one form."""
    folder = tmp_path / "models"
    parity.save_model("dense", folder / "policy", num_hidden_layers=1)
    parity.save_model("dense", folder / "teacher", num_hidden_layers=1)
    file = folder / "teacher" / "model.safetensors"
    save_file({k: 1.1 * v for k, v in load_file(file).items()}, file, metadata={"format": "pt"})
    (tmp_path / "scratch").mkdir()
    return folder


@pytest.mark.soak
def test_each_model_is_filled_from_its_own_files(two: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    mesh = MeshSizes(fsdp=2, tp=2)
    first, *_ = ranks.together(everything, mesh=mesh, folder=two, scratch=scratch)
    for name, held in first.items():
        assert parity.largest(held, saved(two / name)) == 0, name
    critic, *_ = ranks.together(with_critic, mesh=mesh, folder=two, scratch=scratch)
    layers = {
        f"weights/layers.{name.removeprefix('model.')}": tensor
        for name, tensor in saved(two / "teacher").items()
        if name.startswith("model.")
    }
    heads = {name: tensor for name, tensor in critic.items() if name not in layers}
    assert parity.largest({name: critic[name] for name in layers}, layers) == 0
    assert sorted(heads) == ["weights/head.bias", "weights/head.weight"]
    assert not any(bool(tensor.any()) for tensor in heads.values())


def refused(world: World, folder: Path) -> str:
    """One rank alone holds the number that is not finite."""
    with pytest.raises(RefusedError) as caught:
        ranks.learner(folder, world)
    return caught.value.refusal.message


def test_all_ranks_refuse_what_one_of_them_reads(tmp_path: Path) -> None:
    folder = parity.save_model("dense", tmp_path / "model", num_hidden_layers=1)
    tensors = saved(folder)
    tensors[BROKEN][-1, -1] = math.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "scratch").mkdir()
    messages = ranks.together(refused, size=4, folder=folder, scratch=tmp_path / "scratch")
    assert set(messages) == {f"Its weights are not finite: {BROKEN} holds NaN."}


def refused_late(world: World, folder: Path) -> str:
    """The file that one rank reads ends early, after its names and shapes were compared."""
    policy = loading.load(folder, precision="FP32", uri=parity.URI, divided=True)
    if world.rank == 1:
        assert policy.stored is not None
        policy = replace(policy, stored=replace(policy.stored, folder=folder.parent / "cut"))
    with pytest.raises(RefusedError) as caught:
        on_mesh.divided(policy, world)
    return caught.value.refusal.message


def test_all_ranks_refuse_what_one_of_them_cannot_read(tmp_path: Path) -> None:
    folder = parity.save_model("dense", tmp_path / "model", num_hidden_layers=1)
    shutil.copytree(folder, tmp_path / "cut")
    whole = (folder / "model.safetensors").read_bytes()
    (tmp_path / "cut" / "model.safetensors").write_bytes(whole[:-8])
    (tmp_path / "scratch").mkdir()
    messages = ranks.together(refused_late, size=2, folder=folder, scratch=tmp_path / "scratch")
    (message,) = set(messages)
    assert message.startswith("It cannot be loaded: ")
