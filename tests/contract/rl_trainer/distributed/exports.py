"""What all ranks of a mesh export together, compared with what one of them gathers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from rl_contracts.model_files import INDEX_FILE, weight_files
from rl_contracts.spec.parallelism import MeshSizes
from rl_trainer.checkpoint import model_parts
from rl_trainer.checkpoint.model_parts import ModelPart
from rl_trainer.distributed.world import World
from rl_trainer.model import weights
from rl_trainer.model.parallel import sharding
from tests.contract.rl_trainer.distributed import parity, ranks
from tests.models.written_model import Folder

FILE_BYTES = 40_000
"""Each rank writes several files."""
Exported = tuple[dict[str, Tensor], dict[str, Tensor], ModelPart]
"""Trained weights gathered one by one, a snapshot, both on rank 0, and this rank's part."""


def write(target: Path, world: World, folder: Path, *, features: Sequence[str]) -> list[Exported]:
    """Export the model of each feature after a step, into a folder of its name."""
    exported = []
    for feature in features:
        mine = parity.learner(folder, world, feature)
        mine.update(ranks.samples(seed=1), step=1)
        trained = sharding.copies(mine.parameters, world, dtype=torch.bfloat16)
        whole = weights.snapshot(mine.policy, precision="BF16", world=world)
        own = weights.own_weights(mine.policy, precision="BF16", world=world)
        files = Folder(target / feature)
        part = model_parts.write(files, "", own, world=world, file_bytes=FILE_BYTES)
        exported.append((trained, whole, part))
    return exported


def check(sizes: MeshSizes, folder: Path, scratch: Path, *, features: Sequence[str]) -> None:
    """The files have the gathered tensors to the last bit, and transformers loads them.

    Args:
        sizes: of the mesh.
        folder: with the model.
        scratch: an empty folder.
        features: how it is trained (``parity.FEATURES``).
    """
    target = scratch / "exported"
    for feature in features:
        (target / feature).mkdir(parents=True)
    work = partial(write, target, features=features)
    seen = ranks.together(work, mesh=sizes, folder=folder, scratch=scratch)
    for number, feature in enumerate(features):
        of_ranks = [each[number] for each in seen]
        check_model(target / feature, folder, of_ranks, f"{feature} on {sizes}")


def check_model(target: Path, base: Path, of_ranks: Sequence[Exported], what: str) -> None:
    """The same of one exported model."""
    (trained, whole, _), parts = of_ranks[0], [part for *_, part in of_ranks]
    assert all(part.files for part in parts), f"{what}: a rank has written nothing"
    held = [sum(file.size_bytes for file in part.files) for part in parts]
    assert max(held) < 0.75 * sum(held), f"{what}: one rank has written nearly everything"
    index = model_parts.index(parts)
    assert index is not None
    (target / INDEX_FILE).write_bytes(index)
    files = weight_files(target)
    assert [file.name for file in files] == sorted(
        file.name for part in parts for file in part.files
    )
    written = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert sum(len(load_file(file)) for file in files) == len(written), f"{what}: a tensor twice"
    assert written.keys() == whole.keys(), what
    assert all(torch.equal(written[name], whole[name]) for name in whole), what
    plain = written.keys() & trained.keys()  # not adapters, nor what files name otherwise
    assert plain or not what.startswith("GRPO"), what
    assert all(torch.equal(written[name], trained[name]) for name in plain), what
    shutil.copy(base / "config.json", target)
    _, loaded = AutoModelForCausalLM.from_pretrained(target, output_loading_info=True)
    assert not any(loaded.values()), (what, loaded)
