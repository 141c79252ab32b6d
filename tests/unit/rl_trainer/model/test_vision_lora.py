"""Adapters of a vision-language model: its language model's, compared with merged weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_contracts import adapters
from rl_contracts.spec.resources import RLJobSpec
from rl_contracts.spec.training.lora import TARGETS
from rl_trainer import inputs
from rl_trainer.algorithm.packing import collate
from rl_trainer.model import loading, lora, weights
from rl_trainer.model.learner import Learner
from rl_trainer.model.policy import Policy
from tests.models.families import SPEC
from tests.models.tiny_vision import SEEING, Album, AlbumStore, save_seeing, seeing_sample
from tests.models.written_model import write_model

SECTION = {"rank": 3, "alpha": 6}


def loaded(folder: Path, album: Album) -> Policy:
    return loading.load(folder, precision="FP32", uri="s3://m/seeing", images=AlbumStore(album))


def samples(album: Album, family: str) -> list[Any]:
    sizes = [(), ((2, 3),), ((1, 1), (4, 2)), ()]
    return [seeing_sample(album, family, *each, seed=seed) for seed, each in enumerate(sizes)]


def adapted(folder: Path, album: Album) -> Learner:
    spec = RLJobSpec.model_validate(
        SPEC
        | {
            "training": SPEC["training"]
            | {"lora": SECTION, "optimizer": {"learningRate": 1e-2, "maxGradientNorm": 1e6}},
            "algorithm": {"kl": {"estimator": "K3", "coefficient": 0.1}},
        }
    )
    policy = loaded(folder, album)
    learner = Learner(policy, spec, adapter=inputs.adapter_of(folder, policy, spec))
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in learner.parameters.values():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return learner


def logprobs(policy: Policy, row: list[Any]) -> Tensor:
    policy.module.eval()
    return policy.token_logprobs(collate(row, tuple(range(len(row)))), temperature=1.0)


@pytest.mark.parametrize("family", SEEING)
def test_outputs_and_gradients_are_those_of_the_merged_weights(family: str, tmp_path: Path) -> None:
    album = Album()
    folder = save_seeing(tmp_path / "made", family)
    row = samples(album, family)
    learner = adapted(folder, album)
    merged = save_seeing(tmp_path / "merged", family)
    write_model(weights.snapshot(learner.policy, precision="FP32"), merged)
    plain = loaded(merged, album)
    values, wanted = (logprobs(policy, row) for policy in (learner.policy, plain))
    assert torch.allclose(values, wanted, atol=1e-5)
    assert float((values - logprobs(loaded(folder, album), row)).detach().abs().max()) > 0.01
    for total in (values, wanted):
        torch.autograd.backward(total.square().sum())
    of_merged = dict(plain.module.named_parameters())
    for name, layer in lora.layers(learner.policy.module).items():
        gradient = of_merged[f"{name}.weight"].grad
        assert gradient is not None
        assert layer.lora_A.grad is not None
        assert layer.lora_B.grad is not None
        for given, chained in (  # of W + s B A
            (layer.lora_A.grad, layer.scaling * layer.lora_B.detach().T @ gradient),
            (layer.lora_B.grad, layer.scaling * gradient @ layer.lora_A.detach().T),
        ):
            assert torch.allclose(given, chained, rtol=1e-3, atol=1e-4), name


@pytest.mark.parametrize("family", SEEING)
def test_a_step_changes_adapters_of_the_language_model_alone(family: str, tmp_path: Path) -> None:
    album = Album()
    folder = save_seeing(tmp_path, family)
    learner = adapted(folder, album)
    before = {
        name: each.detach().clone() for name, each in learner.policy.module.named_parameters()
    }
    learner.update(samples(album, family), step=1)
    changed = {
        name
        for name, each in learner.policy.module.named_parameters()
        if not torch.equal(each, before[name])
    }
    layers = [f"model.language_model.layers.{at}" for at in range(2)]
    assert {name.rpartition(".")[0] for name in changed} == {
        f"{layer}.{'mlp' if target[0] in 'gud' else 'self_attn'}.{target}"
        for layer in layers
        for target in TARGETS
    }
    assert {name.rpartition(".")[2] for name in changed} == {"lora_A", "lora_B"}


@pytest.mark.parametrize("family", SEEING)
def test_samplers_expect_the_tensors_that_are_published(family: str, tmp_path: Path) -> None:
    folder = save_seeing(tmp_path, family)
    learner = adapted(folder, Album())
    entry = learner.policy.adapter
    assert entry is not None
    published = weights.adapter(learner.policy, precision="FP32")
    expected = adapters.shapes(adapters.model_tensors(folder), entry)
    assert {name: tuple(each.shape) for name, each in published.items()} == expected
