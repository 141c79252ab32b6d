from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rl_contracts.model_files import is_float32
from rl_contracts.stores.files import artifacts
from rl_contracts.stores.files.artifacts import Origin
from rl_trainer.model import loading, weights
from rl_trainer.model.policy import Policy
from tests.models.families import FAMILIES, config_of
from tests.models.written_model import write_model

BIAS = "model.layers.1.mlp.gate.e_score_correction_bias"
ORIGIN = Origin(kind="policy", run="r", epoch=2, step=3, version=4)


def test_a_snapshot_is_independent_of_later_updates(load_policy: Callable[[], Policy]) -> None:
    policy = load_policy()
    taken = weights.snapshot(policy, precision="FP32")
    before = {name: tensor.clone() for name, tensor in taken.items()}
    with torch.no_grad():
        for parameter in policy.parameters().values():
            parameter.add_(1)
    assert all(torch.equal(taken[name], tensor) for name, tensor in before.items())


def test_files_have_the_names_and_shapes_of_the_model_they_came_from(
    load_policy: Callable[[], Policy], tiny_folder: Path, tmp_path: Path
) -> None:
    policy = load_policy()
    write_model(weights.snapshot(policy, precision="FP32"), tmp_path)
    written, original = (
        load_file(folder / "model.safetensors") for folder in (tmp_path, tiny_folder)
    )
    assert written.keys() == original.keys()
    assert all(torch.equal(written[name], original[name]) for name in original)


def test_bfloat16_snapshots_are_rounded_masters(load_policy: Callable[[], Policy]) -> None:
    policy = load_policy()
    taken = weights.snapshot(policy, precision="BF16")
    assert {tensor.dtype for tensor in taken.values()} == {torch.bfloat16}
    parameters = policy.parameters()
    assert all(torch.equal(tensor, parameters[name].bfloat16()) for name, tensor in taken.items())


def test_what_chooses_experts_stays_in_float32(tmp_path: Path) -> None:
    module = AutoModelForCausalLM.from_config(config_of("deepseek_v3"), dtype=torch.float32)
    bias = module.get_buffer(BIAS)
    bias.uniform_(2.0, 2.1)
    module.save_pretrained(tmp_path)
    policy = loading.load(tmp_path, precision="BF16", uri="s3://models/tiny")
    taken = weights.snapshot(policy, precision="BF16")
    assert torch.equal(taken[BIAS], bias)
    wide = {name for name, tensor in taken.items() if tensor.dtype == torch.float32}
    assert wide == set(filter(is_float32, taken))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tensors_in_float32_are_those_of_transformers(family: str) -> None:
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(config_of(family))
    strict = module._keep_in_fp32_modules_strict
    for name in module.state_dict():
        assert is_float32(name) == any(part in name for part in strict), name


def test_sharded_files_load_as_one_model(
    load_policy: Callable[[], Policy], tiny_folder: Path, tmp_path: Path
) -> None:
    policy = load_policy()
    with torch.no_grad():
        for parameter in policy.parameters().values():
            parameter.add_(0.125)
    write_model(weights.snapshot(policy, precision="FP32"), tmp_path, file_bytes=20_000)
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert names == [
        f"model-{n + 1:05d}-of-{len(names):05d}.safetensors" for n in range(len(names))
    ]
    assert len(names) > 1
    shutil.copy(tiny_folder / "config.json", tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert all(
        torch.equal(parameter, policy.parameters()[name])
        for name, parameter in loaded.named_parameters()
    )


def test_the_manifest_has_every_files_and_every_tensors_digest(
    load_policy: Callable[[], Policy], tmp_path: Path
) -> None:
    part = write_model(weights.snapshot(load_policy(), precision="BF16"), tmp_path)
    manifest = artifacts.describe(tmp_path, ORIGIN)
    assert part.files == manifest.files
    assert sorted(part.tensors, key=lambda tensor: tensor.name) == manifest.tensors
    path = tmp_path / "model.safetensors"
    (entry,) = manifest.files
    assert entry.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert entry.size_bytes == path.stat().st_size
    assert (manifest.run, manifest.epoch, manifest.step, manifest.version) == ("r", 2, 3, 4)
    with safe_open(path, framework="pt") as file:
        assert {tensor.name for tensor in manifest.tensors} == set(file.keys())
        for listed in manifest.tensors:
            tensor = file.get_tensor(listed.name)
            raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
            assert listed.sha256 == hashlib.sha256(raw).hexdigest()
            assert (listed.dtype, listed.shape) == ("BF16", list(tensor.shape))
