"""Vision-language models on the meshes that the operator admits."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_contracts.spec.parallelism import MeshSizes
from rl_trainer.distributed.world import ALONE
from tests.contract.rl_trainer.distributed import seeing
from tests.models.tiny_vision import SEEING, save_seeing

MESHES = (
    MeshSizes(fsdp=2),
    MeshSizes(replicate=2),
    MeshSizes(fsdp=4),
    MeshSizes(replicate=2, fsdp=2),
)


@pytest.mark.parametrize("family", SEEING)
@pytest.mark.parametrize("sizes", MESHES, ids=str)
def test_a_mesh_trains_a_vision_language_model_as_one_process(
    family: str, sizes: MeshSizes, tmp_path: Path
) -> None:
    folder, scratch = save_seeing(tmp_path / "model", family), tmp_path / "scratch"
    scratch.mkdir()
    seeing.compare(family, sizes, folder, scratch, alone=ALONE)
