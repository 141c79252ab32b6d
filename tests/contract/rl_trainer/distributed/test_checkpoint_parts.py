"""Checkpoints that ranks write in parts: whole on any mesh, verified, and bounded in memory."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from rl_contracts.documents.manifest import FileEntry, Manifest
from rl_contracts.errors import IntegrityError, ObjectMissingError
from rl_contracts.spec.parallelism import MeshSizes
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files import artifacts
from rl_contracts.stores.files.artifacts import Origin, Uploaded
from rl_contracts.stores.objects import Objects
from rl_trainer.checkpoint import parts, saved, stored
from rl_trainer.checkpoint.saved import State
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model.learner import Learner
from tests.contract.rl_trainer.distributed import parity, ranks
from tests.models import states
from tests.waiting import HUNG_SECONDS

PREFIX = "checkpoints/00000002-1-ab/"
MESH, OTHER = MeshSizes(fsdp=2, tp=2), MeshSizes(fsdp=2)


@dataclasses.dataclass(frozen=True)
class Kept:
    """What one rank wrote, and the whole state."""

    files: list[FileEntry]
    num_bytes: int
    state: dict[str, Tensor]
    about: State


def trained(folder: Path, world: World) -> Learner:
    """A learner after a step, with all kinds of state."""
    learner = parity.learner(folder, world, parity.STATEFUL)
    learner.update(ranks.samples(seed=1), step=1)
    return learner


def write(settings: dict[str, str], world: World, folder: Path) -> Kept:
    """Write this rank's part."""
    objects = Objects(StoreSettings.from_mapping(settings), patience_seconds=HUNG_SECONDS)
    learner = trained(folder, world)
    snapshot = saved.copied(learner)
    files = parts.write(objects, objects.prefix + PREFIX, snapshot, rank=world.rank)
    size = sum(piece.numbers.nbytes for piece in snapshot.values())
    return Kept(files, size, states.state(learner), ranks.about(learner))


def commit(objects: Objects, files: list[FileEntry], state: State) -> Uploaded:
    """Make a checkpoint of what was written, as rank 0 does."""
    content = state.model_dump_json().encode()
    objects.put(objects.prefix + PREFIX + saved.STATE, content)
    files = [*files, artifacts.entry(saved.STATE, content)]
    artifacts.check_uploaded(objects, objects.prefix + PREFIX, files)
    manifest = Manifest(kind="checkpoint", run="run", epoch=1, step=1, files=files)
    return artifacts.commit(objects, objects.prefix + PREFIX, manifest)


def restored(
    settings: dict[str, str], uploaded: Uploaded, world: World, folder: Path
) -> dict[str, Tensor]:
    """The state of a learner that has read a checkpoint."""
    objects = Objects(StoreSettings.from_mapping(settings), patience_seconds=HUNG_SECONDS)
    learner = parity.learner(folder, world, parity.STATEFUL)
    checkpoint = saved.read(objects, uploaded.prefix, manifest_sha256=uploaded.manifest_sha256)
    saved.put_back(checkpoint, learner)
    return states.state(learner)


def same(tensors: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert tensors.keys() == other.keys()
    for name, tensor in other.items():
        assert torch.equal(tensors[name], tensor), name


@pytest.mark.soak
def test_every_rank_writes_a_share_and_any_mesh_reads_the_whole(
    stores: Stores, store_settings: StoreSettings, tmp_path: Path
) -> None:
    folder, scratch = parity.save_model("dense", tmp_path / "model"), tmp_path / "scratch"
    scratch.mkdir()
    settings, objects = store_settings.to_mapping(), stores.objects
    kept = ranks.together(partial(write, settings), mesh=MESH, folder=folder, scratch=scratch)
    state = kept[0].state
    whole = sum(tensor.nbytes for tensor in state.values())
    assert sum(each.num_bytes for each in kept) == whole, "every number is kept once"
    assert max(each.num_bytes for each in kept) < 1.02 * whole / len(kept)
    files = [file for each in kept for file in each.files]
    uploaded = commit(objects, files, kept[0].about)
    same(restored(settings, uploaded, ALONE, folder), state)
    work = partial(restored, settings, uploaded)
    for each in ranks.together(work, mesh=OTHER, folder=folder, scratch=scratch):
        same(each, state)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return parity.save_model("dense", tmp_path / "model", num_hidden_layers=1)


def test_damage_is_found_before_it_is_trained(
    folder: Path, stores: Stores, store_settings: StoreSettings
) -> None:
    settings, objects = store_settings.to_mapping(), stores.objects
    kept = write(settings, ALONE, folder)
    uploaded = commit(objects, kept.files, kept.about)
    same(restored(settings, uploaded, ALONE, folder), kept.state)
    for file in kept.files:
        key = uploaded.prefix + file.name
        content = objects.get(key)
        changed = bytearray(content)
        changed[-1] ^= 1
        objects.put(key, bytes(changed))
        with pytest.raises(IntegrityError, match="digest"):
            restored(settings, uploaded, ALONE, folder)
        objects.put(key, content[:-1])
        with pytest.raises(IntegrityError):
            restored(settings, uploaded, ALONE, folder)
        objects.delete_page(uploaded.prefix)
        with pytest.raises(ObjectMissingError):
            restored(settings, uploaded, ALONE, folder)
        write(settings, ALONE, folder)
        commit(objects, kept.files, kept.about)


def test_a_checkpoint_of_whole_files_is_read(
    folder: Path, stores: Stores, store_settings: StoreSettings, tmp_path: Path
) -> None:
    """As earlier releases wrote them."""
    learner = trained(folder, ALONE)
    state, made = states.state(learner), tmp_path / "made"
    made.mkdir()
    for name, section in stored.WHOLE_FILES.items():
        save_file(states.section(section, state), made / name)
    (made / saved.STATE).write_text(ranks.about(learner).model_dump_json())
    prefix = stores.objects.prefix + PREFIX
    origin = Origin(kind="checkpoint", run="run", epoch=1, step=1)
    uploaded = artifacts.upload(stores.objects, made, prefix=prefix, origin=origin)
    same(restored(store_settings.to_mapping(), uploaded, ALONE, folder), state)
