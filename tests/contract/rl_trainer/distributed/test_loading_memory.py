"""Host memory of processes that load a model: each needs room for its part alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.trainer import loading_memory
from rl_contracts.spec.parallelism import MeshSizes
from tests.examples import first


@pytest.mark.parametrize(
    ("mesh", "part"),
    first(1, [(None, 1.0), (MeshSizes(fsdp=2, tp=2), 0.25)]),
    ids=["alone", "four"],
)
def test_a_process_needs_memory_for_its_part_of_a_model(
    mesh: MeshSizes | None, part: float, tmp_path: Path
) -> None:
    """Stored in bfloat16, trained in float32: no copy of the whole is ever held."""
    folder = loading_memory.write(tmp_path, layers=3)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for figures in loading_memory.measured(scratch, folder, mesh=mesh):
        assert figures["parts"] == pytest.approx(part, abs=0.01)
        assert figures["peak"] < loading_memory.BAR * part
