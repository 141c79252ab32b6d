"""Every cell of the table of meshes and features that says it works; each mesh's checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Tensor

from rl_contracts.capacity.mesh import TRIED
from rl_contracts.spec.parallelism import MeshSizes
from rl_trainer.distributed.world import ALONE
from tests.contract.rl_trainer.distributed import exports, parity, ranks

CASES = [
    (model, sizes)
    for model in parity.MODELS
    for sizes in (
        *parity.MESHES.values(),
        *(parity.EXPERT_MESHES.values() if model in parity.EXPERT_MODELS else ()),
    )
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: parity.save_model(name, folder / name) for name in parity.MODELS}


@pytest.mark.parametrize(("model", "sizes"), CASES, ids=lambda case: str(case))
def test_a_mesh_trains_as_one_process(
    model: str, sizes: MeshSizes, folders: dict[str, Path], tmp_path: Path
) -> None:
    features = parity.features_of(model, sizes)
    alone = parity.train(ALONE, folders[model], features=features)
    seen = parity.on_mesh(sizes, folders[model], tmp_path, features=features)
    for feature in features:
        gap = parity.gap(seen[feature], alone[feature])
        assert gap.largest < parity.TOLERANCE, (feature, gap)


def test_a_mesh_gives_the_same_weights_bit_for_bit_each_time(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    for model, sizes in (
        ("dense", MeshSizes(fsdp=2, tp=2)),
        ("mixture", MeshSizes(fsdp=2, tp=2, ep=4)),
    ):
        first, second = (
            parity.on_mesh(sizes, folders[model], tmp_path, features=["GRPO"])["GRPO"]
            for _ in range(2)
        )
        assert parity.largest(first.weights, second.weights) == 0, model


@pytest.mark.parametrize(
    ("axis", "family"), [(axis, name) for axis in TRIED for name in TRIED[axis]]
)
def test_a_family_that_is_admitted_to_an_axis_trains_as_one_process(
    axis: str, family: str, tmp_path: Path
) -> None:
    folder = parity.save_family(family, tmp_path / "model")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    sizes = {"tp": MeshSizes(tp=2), "cp": MeshSizes(cp=2), "ep": MeshSizes(fsdp=2, ep=2)}[axis]
    alone = parity.train(ALONE, folder, features=["GRPO"])
    seen = parity.on_mesh(sizes, folder, scratch, features=["GRPO"])
    assert parity.gap(seen["GRPO"], alone["GRPO"]).largest < parity.TOLERANCE


SAVED_ON = {
    "dense": (
        MeshSizes(tp=2),
        MeshSizes(fsdp=2, tp=2),
        MeshSizes(replicate=2, fsdp=2),
        MeshSizes(cp=2, tp=2),
    ),
    "mixture": (MeshSizes(tp=2), MeshSizes(fsdp=2, ep=2), MeshSizes(fsdp=2, tp=2, ep=4)),
    "latent": (MeshSizes(tp=2, ep=2),),
}


@pytest.mark.parametrize("model", SAVED_ON)
def test_a_checkpoint_of_one_mesh_resumes_on_any_other(
    model: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = folders[model]
    state, expected = parity.save(ALONE, folder)
    for sizes in SAVED_ON[model]:
        check(state, expected, sizes, folder=folder, scratch=tmp_path)


def check(
    state: dict[str, Tensor],
    expected: dict[str, Tensor],
    sizes: MeshSizes,
    *,
    folder: Path,
    scratch: Path,
) -> None:
    """From one process to the mesh, and from the mesh to one process."""
    resumed = ranks.together(
        parity.Resume(parity.kept(state, scratch)), mesh=sizes, folder=folder, scratch=scratch
    )
    assert parity.largest(resumed[0], expected) < parity.TOLERANCE, sizes
    (saved, weights), *_ = ranks.together(parity.save, mesh=sizes, folder=folder, scratch=scratch)
    assert parity.largest(saved, state) < parity.TOLERANCE, sizes
    assert parity.largest(weights, expected) < parity.TOLERANCE, sizes
    again = parity.Resume(parity.kept(saved, scratch))
    assert parity.largest(again(ALONE, folder), expected) < parity.TOLERANCE, sizes


@pytest.mark.parametrize("sizes", [MeshSizes(replicate=2), MeshSizes(fsdp=2, cp=2)], ids=str)
def test_ranks_publish_experts_with_their_adapters_merged_together(
    sizes: MeshSizes, folders: dict[str, Path], tmp_path: Path
) -> None:
    parity.check_merged(sizes, folders["mixture"], tmp_path)


def test_ranks_publish_a_policy_of_a_mesh_together(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    for model, meshes in SAVED_ON.items():
        for sizes in meshes:
            parts = ranks.together(
                parity.publish, mesh=sizes, folder=folders[model], scratch=tmp_path
            )
            whole, shares = parts[0][0], [own for _, own in parts]
            assert sum(map(len, shares)) == len(whole), "each tensor belongs to one rank"
            assert parity.largest({k: v for own in shares for k, v in own.items()}, whole) == 0


EXPORTED_ON = {
    "dense": (("GRPO", "LoRA", "Int8"), (*SAVED_ON["dense"], MeshSizes(fsdp=2), MeshSizes(cp=2))),
    "untied": (("GRPO",), (MeshSizes(fsdp=2), MeshSizes(tp=2))),
    "mixture": (("GRPO", "LoRA"), SAVED_ON["mixture"]),
    "latent": (("GRPO",), SAVED_ON["latent"]),
}


@pytest.mark.parametrize("model", EXPORTED_ON)
def test_ranks_export_a_model_of_a_mesh_together(
    model: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    features, meshes = EXPORTED_ON[model]
    for number, sizes in enumerate(meshes):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        exports.check(sizes, folders[model], scratch, features=features)
