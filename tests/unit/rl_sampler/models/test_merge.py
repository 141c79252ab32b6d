"""An adapter merged without torch, against the trainer's own merging."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rl_contracts.adapters import tensor_name
from rl_contracts.documents.manifest import AdapterEntry
from rl_contracts.model_files import read_header
from rl_contracts.spec.training.training import Precision
from rl_sampler.models.merge import merge
from rl_trainer.model.lora import merged

TORCH = {"BF16": torch.bfloat16, "FP16": torch.float16, "FP32": torch.float32}
ENTRY = AdapterEntry(
    base_uri="s3://b/m", base_sha256="0", rank=2, alpha=6, dropout=0.0, targets=["q_proj"]
)
LAYER = "model.layers.0.self_attn.q_proj"
BIAS = "model.layers.0.mlp.gate.e_score_correction_bias"
EDGES = [0.0, -0.0, 1.00390625, 1.01171875, 65504.0, 70000.0, 3.4e38, float("inf"), float("nan")]
"""Ties, the ends of the types' ranges, and what is no number."""


def write(folder: Path, tensors: dict[str, torch.Tensor], name: str) -> None:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / name, metadata={"format": "pt"})


@pytest.mark.parametrize("precision", ["BF16", "FP16", "FP32"])
@pytest.mark.parametrize("stored", ["BF16", "FP16", "FP32"])
def test_a_merged_model_is_what_the_trainer_exports(
    precision: Precision, stored: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms: list[int] = []

    def note(needed: int, folder: Path, *, what: str) -> None:
        rooms.append(needed)

    monkeypatch.setattr("rl_sampler.models.merge.check_room", note)
    torch.manual_seed(5)
    weight = torch.randn(6, 5).to(TORCH[stored])
    first, second = torch.randn(2, 5), torch.randn(6, 2)
    others = {
        "model.norm.weight": torch.tensor(EDGES).to(TORCH[stored]),
        "model.steps": torch.arange(3),
        BIAS: torch.tensor([2.001, 2.002]).to(TORCH[stored]),
    }
    write(tmp_path / "base", {f"{LAYER}.weight": weight, **others}, "model.safetensors")
    factors = {tensor_name(LAYER, "lora_A"): first, tensor_name(LAYER, "lora_B"): second}
    write(tmp_path / "adapter", factors, "adapter_model.safetensors")
    out = tmp_path / "out"
    out.mkdir()
    merge(tmp_path / "base", tmp_path / "adapter", ENTRY, out, precision=precision)

    dtype = TORCH[precision]
    got = load_file(out / "model.safetensors")
    wanted = merged(weight.float(), first, second, scaling=3.0).to(dtype)
    assert got[f"{LAYER}.weight"].dtype is dtype
    torch.testing.assert_close(got[f"{LAYER}.weight"], wanted)
    norm = others["model.norm.weight"].to(dtype)
    assert torch.equal(got["model.norm.weight"].isnan(), norm.isnan())
    assert torch.equal(got["model.norm.weight"].nan_to_num(7), norm.nan_to_num(7))
    assert torch.equal(got["model.steps"], others["model.steps"])
    assert torch.equal(got[BIAS], others[BIAS].float()), "in float32, as the trainer exports it"
    assert set(read_header(out / "model.safetensors")) == set(got)
    assert rooms == [sum(each.nbytes for each in got.values())], "the disk has room for these"
