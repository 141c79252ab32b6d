from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from rl_contracts.disk import DiskFullError
from rl_contracts.errors import IntegrityError
from rl_contracts.model_files import INDEX_FILE, weight_files
from rl_policy_codec import mxfp4
from tests.models.families import FAMILIES, SIZES

EXPERTS = "model.layers.0.mlp.experts."


def packed(experts: int, rows: int, groups: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Blocks of any bits, and scales around one."""
    generator = torch.Generator().manual_seed(seed)
    blocks = torch.randint(0, 256, (experts, rows, groups, 16), generator=generator)
    scales = torch.randint(118, 124, (experts, rows, groups), generator=generator)
    return blocks.to(torch.uint8), scales.to(torch.uint8)


def stored(folder: Path) -> Path:
    """A folder as gpt-oss is published: experts in MXFP4, the rest in bfloat16, in two files."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "gpt_oss", **SIZES | FAMILIES["gpt_oss"] | {"num_hidden_layers": 1}
    )
    module = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    module.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for seed, name in enumerate(("gate_up_proj", "down_proj")):
        experts, wide, rows = tensors.pop(EXPERTS + name).shape
        blocks, scales = packed(experts, rows, wide // 32, seed=seed)
        tensors[f"{EXPERTS}{name}_blocks"], tensors[f"{EXPERTS}{name}_scales"] = blocks, scales
    (folder / "model.safetensors").unlink()
    apart = {f"{EXPERTS}down_proj_scales", "lm_head.weight"}
    parts = {"a": {*tensors} - apart, "b": apart}
    for part, names in parts.items():
        save_file(
            {name: tensors[name] for name in names},
            folder / f"{part}.safetensors",
            metadata={"format": "pt"},
        )
    places = {name: f"{part}.safetensors" for part, names in parts.items() for name in names}
    (folder / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    written: dict[str, Any] = json.loads((folder / "config.json").read_text())
    written["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": []}
    (folder / "config.json").write_text(json.dumps(written))
    return folder


def everything(folder: Path) -> dict[str, Tensor]:
    return {name: each for path in weight_files(folder) for name, each in load_file(path).items()}


def test_every_byte_under_every_scale_is_what_transformers_makes_of_it() -> None:
    blocks = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    # Beyond these, bfloat16 has no normal numbers.
    for scale in range(8, 252):
        scales = torch.full((1, 1, 16), scale, dtype=torch.uint8)
        wanted = convert_moe_packed_tensors(blocks, scales)[0]
        bits = mxfp4.decode(blocks[0].numpy(), scales[0].numpy())
        given = torch.from_numpy(np.ascontiguousarray(bits).view(np.int16)).view(torch.bfloat16)
        assert torch.equal(given, wanted), scale


def test_a_folder_becomes_the_same_model_in_bfloat16(tmp_path: Path) -> None:
    before = everything(stored(tmp_path))
    mxfp4.unpack(tmp_path)
    after = everything(tmp_path)
    matrices = {f"{EXPERTS}gate_up_proj", f"{EXPERTS}down_proj"}
    suffixes = ("_blocks", "_scales")
    assert after.keys() == {name for name in before if not name.endswith(suffixes)} | matrices
    for name in matrices:
        blocks, scales = (before[name + suffix] for suffix in suffixes)
        assert torch.equal(after[name], convert_moe_packed_tensors(blocks, scales))
    assert all(torch.equal(after[name], before[name]) for name in after.keys() - matrices)
    config = AutoConfig.from_pretrained(tmp_path)
    assert (config.dtype, hasattr(config, "quantization_config")) == (torch.bfloat16, False)
    index = json.loads((tmp_path / INDEX_FILE).read_text())
    assert index["weight_map"].keys() == after.keys()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)  # by the index
    assert torch.equal(loaded.state_dict()[f"{EXPERTS}down_proj"], after[f"{EXPERTS}down_proj"])
    assert {path.name for path in tmp_path.glob("*.unpacked")} == set()


def test_a_folder_in_bfloat16_is_left_as_it_is(tmp_path: Path) -> None:
    AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **SIZES)).save_pretrained(
        tmp_path
    )
    content = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    mxfp4.unpack(tmp_path)
    assert content == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_full_disk_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    content = {path.name: path.read_bytes() for path in stored(tmp_path).iterdir()}
    with pytest.raises(DiskFullError, match="the model in bfloat16"):
        mxfp4.unpack(tmp_path, free=lambda folder: 1 << 20)
    assert content == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.mark.parametrize("scales", [None, (4, 192, 3), (4, 192, 2, 1)])
def test_blocks_without_their_scales_are_refused(
    scales: tuple[int, ...] | None, tmp_path: Path
) -> None:
    stored(tmp_path)
    tensors = load_file(tmp_path / "a.safetensors")
    name = f"{EXPERTS}gate_up_proj_scales"
    del tensors[name]
    if scales is not None:
        tensors[name] = torch.zeros(scales, dtype=torch.uint8)
    save_file(tensors, tmp_path / "a.safetensors")
    with pytest.raises(IntegrityError, match="gate_up_proj_blocks is U8"):
        mxfp4.unpack(tmp_path)
