"""Runs that train adapters: what they publish, keep and leave, and what a crash changes of it."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from rl_contracts.adapters import PARTS, tensor_name
from rl_contracts.documents.manifest import Manifest
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.stores.objects import split_uri
from rl_trainer.checkpoint import saved, stored
from rl_trainer.distributed.world import ALONE
from rl_trainer.distributed.world import World as Ranks
from rl_trainer.model import weights
from tests.contract.rl_trainer.conftest import MakeWorld
from tests.contract.rl_trainer.distributed import ranks
from tests.contract.rl_trainer.durability.crash import Crashed, crashing_after
from tests.contract.rl_trainer.sampling import TestSampler, sampling
from tests.contract.rl_trainer.world import RUN, World
from tests.models import states as states_of
from tests.models.tiny_model import save_tiny, tiny_model
from tests.servers import ROOT

READ = runpy.run_path(str(ROOT / "examples/policy_reader/read_policy.py"))["read"]
LORA = {"rank": 4, "alpha": 8, "dropout": 0.1}
FULL_BYTES = sum(4 * parameter.numel() for parameter in tiny_model().parameters())


@dataclass
class AdapterSampler(TestSampler):
    """Applies the published adapters to the model that training started from."""

    __test__ = False

    def __post_init__(self) -> None:
        super().__post_init__()
        # Not made anew for each policy: that would seed the generator of the trainer's dropout.
        self._base = {name: tensor.clone() for name, tensor in self._model.state_dict().items()}

    def _load(self, pointer: PolicyPointer) -> None:
        manifest, tensors = published(self, pointer)
        assert manifest.adapter is not None
        scaling = manifest.adapter.alpha / manifest.adapter.rank
        state = dict(self._base)
        for name in [key for key in state if tensor_name(stem(key), "lora_A") in tensors]:
            first, second = (tensors[tensor_name(stem(name), part)] for part in PARTS)
            state[name] = state[name] + scaling * second @ first
        self._model.load_state_dict(state)
        self.held = pointer
        self.served.add(pointer.version)
        self.policies[pointer.version] = pointer


def stem(name: str) -> str:
    return name.removesuffix(".weight")


def published(sampler: TestSampler, pointer: PolicyPointer) -> tuple[Manifest, dict[str, Tensor]]:
    """A version's manifest and tensors, as the documented reader finds them."""
    objects = sampler.stores.objects
    manifest = Manifest.from_bytes(
        objects.get(pointer.prefix + "manifest.json"), sha256=pointer.manifest_sha256
    )
    files = READ(objects.get, pointer.prefix)
    assert list(files) == ["adapter_model.safetensors"]
    return manifest, load(bytes(files["adapter_model.safetensors"]))


@pytest.mark.soak
@pytest.mark.parametrize("quantization", [None, "Int8"])
def test_a_run_of_crashing_trainers_ends_with_the_adapters_of_one_that_never_stopped(
    quantization: str | None,
    make_world: MakeWorld,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    world = make_world(
        steps=6,
        checkpoint={"everySteps": 2, "exportEverySteps": 4},
        evaluation={"beforeTraining": False, "temperatures": [1.0]},
        lora=LORA | {"quantization": quantization},
    )
    sampler, crashes = AdapterSampler(world.stores, RUN), 0
    with sampling(sampler):
        for commands in (60, 110, 90):
            try:
                with crashing_after(commands, monkeypatch):
                    world.attempt()
            except Crashed:
                crashes += 1
        assert world.attempt() == 0
    assert crashes >= 1  # a whole run takes more commands than a fuse holds
    world.check_lineage()
    (evaluation,) = world.run.evaluations
    least, most = (0.0, 1e-5) if quantization is None else (1e-4, 0.1)
    assert least <= evaluation.logprob_gap_mean < most, "the engine's model is not quantized"
    check_published(sampler)
    check_checkpoint(world)
    check_final(world, tmp_path)
    root = f"{world.stores.run_prefix(RUN)}exports/00000004/"
    exported = [
        stored_object.key.partition("/adapter/")
        for stored_object in world.stores.objects.list(root)
    ]
    assert "adapter_config.json" in {name for _, _, name in exported}


def check_published(sampler: TestSampler) -> None:
    run = sampler.stores.runs.get(RUN)
    assert run is not None
    assert run.policy is not None
    manifest, tensors = published(sampler, run.policy)
    assert manifest.adapter is not None
    assert manifest.adapter.base_uri.endswith("model")
    assert (manifest.adapter.rank, manifest.adapter.alpha) == (4, 8.0)
    assert sum(4 * tensor.numel() for tensor in tensors.values()) < FULL_BYTES
    assert {name.rpartition(".lora_")[2] for name in tensors} == {"A.weight", "B.weight"}


def check_checkpoint(world: World) -> None:
    assert world.run.durable is not None
    restored = saved.read(
        world.stores.objects,
        world.run.durable.prefix,
        manifest_sha256=world.run.durable.manifest_sha256,
    )
    sections = {name.partition("/")[0] for name in restored.tensors}
    assert sections == {"masters", "moments"}
    assert all("lora_" in name for name in restored.tensors)
    assert restored.state.adapter is not None
    assert len(restored.state.adapter.base_sha256) == 64


def check_final(world: World, folder: Path) -> None:
    """The final model loads, and is the model with what lies in ``adapter/`` merged into it."""
    _, prefix = split_uri(world.outcome.final_model)
    for stat in world.stores.objects.list(prefix):
        path = folder / "final" / stat.key.removeprefix(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        world.stores.objects.get_file(stat.key, path)
    merged = AutoModelForCausalLM.from_pretrained(folder / "final").state_dict()
    tensors = load_file(folder / "final/adapter/adapter_model.safetensors")
    config = json.loads((folder / "final/adapter/adapter_config.json").read_text())
    scaling = config["lora_alpha"] / config["r"]
    changed = set()
    for name, tensor in tiny_model().state_dict().items():
        if tensor_name(stem(name), "lora_A") in tensors:
            first, second = (tensors[tensor_name(stem(name), part)] for part in PARTS)
            assert torch.allclose(merged[name], tensor + scaling * second @ first, atol=1e-6), name
            changed.add(name.split(".")[-2])
        else:
            assert torch.equal(merged[name], tensor), name
    assert changed == set(config["target_modules"])


def states(world: Ranks, folder: Path) -> list[dict[str, Tensor]]:
    """Beside whole weights and beside quantized ones; processes take seconds to begin."""
    return state(world, folder, None) + state(world, folder, "Int8")


def state(world: Ranks, folder: Path, quantization: str | None) -> list[dict[str, Tensor]]:
    """What is published, exported and kept after two steps."""
    low_rank = {"rank": 3, "quantization": quantization}
    training = {"lora": low_rank, "optimizer": {"learningRate": 1e-3}}
    learner = ranks.learner(folder, world, training=training)
    for step in (1, 2):
        learner.update(ranks.samples(seed=step), step=step)
    take: list[Callable[..., dict[str, Tensor]]] = [weights.adapter, weights.snapshot]
    snapshots = [function(learner.policy, precision="FP32", world=world) for function in take]
    kept = states_of.section(stored.MASTERS, states_of.state(learner))
    return [*snapshots, kept if world.leads else {}]


def test_rank_0_has_whole_adapters_of_a_divided_model(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model", intermediate_size=49)
    expected = states(ALONE, folder)
    leads, follows = ranks.together(states, size=2, folder=folder, scratch=tmp_path)
    assert not any(follows)
    for wanted, actual in zip(expected, leads, strict=True):
        assert actual.keys() == wanted.keys()
        assert all(torch.allclose(actual[name], wanted[name], atol=1e-5) for name in wanted)
