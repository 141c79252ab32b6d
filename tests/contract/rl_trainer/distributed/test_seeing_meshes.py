"""Two processes train a vision-language model as one does; more meshes in tests/chaos."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_contracts.spec.parallelism import MeshSizes
from rl_trainer.distributed.world import ALONE
from tests.contract.rl_trainer.distributed import seeing
from tests.models.tiny_vision import save_seeing


@pytest.mark.soak
def test_processes_of_which_some_see_no_image_train_as_one(tmp_path: Path) -> None:
    folder, scratch = save_seeing(tmp_path / "model"), tmp_path / "scratch"
    scratch.mkdir()
    seeing.compare("qwen2_5_vl", MeshSizes(fsdp=2), folder, scratch, alone=ALONE)
