"""Models that two processes train together; all other meshes are in the soak."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rl_contracts.spec.parallelism import MeshSizes
from rl_trainer.distributed.world import ALONE
from tests.contract.rl_trainer.distributed import exports, parity

FEATURES = ("distributions",)
"""Entropies with gradient, divergences over the vocabulary, layers that are run again."""


def test_two_processes_that_compute_each_layer_together_train_as_one(tmp_path: Path) -> None:
    folder = parity.save_model("dense", tmp_path / "model", num_hidden_layers=1)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    torch.manual_seed(0)
    alone = parity.train(ALONE, folder, features=FEATURES)
    seen = parity.on_mesh(MeshSizes(tp=2), folder, scratch, features=FEATURES)
    for feature in FEATURES:
        assert parity.gap(seen[feature], alone[feature]).largest < parity.TOLERANCE


@pytest.mark.soak
def test_two_processes_train_and_publish_adapters_of_experts_as_one(tmp_path: Path) -> None:
    folder = parity.save_model("mixture", tmp_path / "model", num_hidden_layers=2)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    feature = parity.EXPERT_LORA
    alone = parity.train(ALONE, folder, features=[feature])
    seen = parity.on_mesh(MeshSizes(fsdp=2), folder, scratch, features=[feature])
    assert parity.gap(seen[feature], alone[feature]).largest < parity.TOLERANCE
    parity.check_merged(MeshSizes(fsdp=2), folder, scratch)


@pytest.mark.soak
def test_two_processes_export_what_one_of_them_would_gather(tmp_path: Path) -> None:
    folder = parity.save_model("dense", tmp_path / "model", num_hidden_layers=2)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    exports.check(MeshSizes(tp=2), folder, scratch, features=("GRPO", "LoRA"))
