from __future__ import annotations

import pytest

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.parallelism import MeshSizes, Parallelism, mesh_sizes


def refusal(processes: int, **sizes: int) -> Refusal:
    with pytest.raises(RefusedError) as caught:
        mesh_sizes(Parallelism(**sizes), processes)
    return caught.value.refusal


@pytest.mark.parametrize(
    ("sizes", "processes", "mesh"),
    [
        ({}, 1, MeshSizes()),
        ({}, 8, MeshSizes(fsdp=8)),
        ({"tp": 2}, 8, MeshSizes(fsdp=4, tp=2)),
        ({"replicate": 2}, 8, MeshSizes(replicate=2, fsdp=4)),
        ({"fsdp": 2}, 8, MeshSizes(replicate=4, fsdp=2)),
        ({"fsdp": 1, "tp": 4}, 8, MeshSizes(replicate=2, tp=4)),
        ({"ep": 4, "tp": 2}, 8, MeshSizes(fsdp=4, tp=2, ep=4)),
        ({"cp": 1, "pp": 1}, 2, MeshSizes(fsdp=2)),
        ({"cp": 4}, 8, MeshSizes(fsdp=2, cp=4)),
    ],
)
def test_sizes_that_are_left_out_are_derived(
    sizes: dict[str, int], processes: int, mesh: MeshSizes
) -> None:
    assert mesh_sizes(Parallelism(**sizes), processes) == mesh
    assert mesh.processes == processes


def test_sizes_that_do_not_divide_the_processes_are_refused_with_the_arithmetic() -> None:
    refused = refusal(6, tp=4)
    assert (refused.field, refused.value) == ("spec.trainer.parallelism.tp", "4")
    assert "tp 4 do not divide the trainer's 6 processes" in refused.message
    assert "multiple of 4" in refused.remedy
    refused = refusal(8, replicate=2, fsdp=2, tp=4)
    assert "replicate 2 × fsdp 2 × tp 4 = 16 are not the trainer's 8 processes" in refused.message
    assert "exactly 16" in refused.remedy


def test_groups_of_experts_divide_the_processes_of_a_copy_and_hold_whole_layers() -> None:
    refused = refusal(8, replicate=2, ep=8)
    assert "fsdp 4 × cp 1 × tp 1 = 4 processes" in refused.message
    refused = refusal(12, tp=4, ep=6)
    assert "no multiple of tp 4" in refused.message


@pytest.mark.parametrize("axis", ["pp"])
def test_axes_that_are_not_built_are_refused_by_name(axis: str) -> None:
    refused = refusal(4, **{axis: 2})
    assert refused.field == f"spec.trainer.parallelism.{axis}"
    assert "Remove it" in refused.remedy


def test_a_mesh_names_its_axes_above_one() -> None:
    assert str(MeshSizes(fsdp=4, tp=2, ep=4)) == "fsdp 4 × tp 2, ep 4"
    assert str(MeshSizes()) == "fsdp 1"
    assert MeshSizes(fsdp=4, tp=2, ep=4).experts_fsdp == 2
    assert MeshSizes(replicate=2, fsdp=4, tp=2).data_ranks == 8
