"""Staging from a real bucket: complete and verified, or not there at all."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from rl_contracts.disk import SPARE_BYTES, DiskFullError, free_bytes
from rl_contracts.errors import IntegrityError, ObjectMissingError, RefusedError
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.files.model_folder import BaseLocations, ModelLocation
from rl_contracts.stores.objects import Objects
from rl_sampler.engine.assignment import load_assignment
from rl_sampler.engine.weights import WeightsFolder
from rl_sampler.policy import page_cache
from rl_sampler.policy.base import stage_base
from rl_sampler.policy.fetch import StagingCancelledError
from rl_sampler.policy.stage import Stager
from rl_sampler.policy.verify import model_signature
from rl_sampler.prepare import prepare
from tests.contract.rl_sampler.pods import new_pod, start_run
from tests.contract.rl_sampler.scripted_trainer import Damage, ScriptedTrainer
from tests.models.tiny_model import save_tiny, tiny_tokenizer

NEVER = threading.Event()


@pytest.fixture
def weights(tmp_path: Path, tiny_model: Path) -> WeightsFolder:
    folder = WeightsFolder(tmp_path / "weights")
    shutil.copytree(tiny_model, folder.base)
    return folder


@pytest.fixture
def stager(stores: Stores, weights: WeightsFolder) -> Stager:
    signature = model_signature(weights.base, precision="FP32")
    return Stager(stores.objects, weights=weights, signature=signature)


@pytest.fixture
def trainer(stores: Stores, tiny_model: Path) -> ScriptedTrainer:
    return start_run(stores, tiny_model)


def staged_names(weights: WeightsFolder) -> list[str]:
    return sorted(path.name for path in weights.policies.iterdir())


def test_policy_is_staged_whole_and_once(
    stager: Stager, weights: WeightsFolder, trainer: ScriptedTrainer, stores: Stores
) -> None:
    pointer = trainer.publish(seed=1)
    staged = stager.stage(pointer, keep=[], cancelled=NEVER)
    names = {path.name for path in staged.folder.iterdir()}
    assert {"config.json", "tokenizer.json", "manifest.json", "model.safetensors"} <= names
    weights.link_current(staged.folder)
    assert weights.linked_policy() == pointer
    stores.objects.delete_prefix(pointer.prefix)
    assert stager.stage(pointer, keep=[], cancelled=NEVER) == staged, "it is not read again"


@pytest.mark.parametrize("large", [False, True])
def test_a_large_policy_is_read_into_memory_and_a_small_one_is_not(
    large: bool, stager: Stager, trainer: ScriptedTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(page_cache, "READ_FROM_BYTES", 1000)
    read: list[Path] = []
    monkeypatch.setattr(page_cache, "read", lambda folder, _: read.append(folder))
    staged = stager.stage(trainer.publish(seed=1), keep=[], cancelled=NEVER)
    assert read == ([staged.folder] if large else [])
    assert staged.size_bytes == sum(
        tensor.nbytes for tensor in load_file(staged.folder / "model.safetensors").values()
    )
    assert staged.seconds > 0


def test_damaged_staged_policy_is_removed(
    stager: Stager, weights: WeightsFolder, trainer: ScriptedTrainer
) -> None:
    staged = stager.stage(trainer.publish(seed=1), keep=[], cancelled=NEVER)
    path = staged.folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(IntegrityError, match="damaged"):
        stager.restage(staged.pointer)
    assert staged_names(weights) == []


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: b""],
)
def test_damaged_object_in_the_bucket_leaves_no_files(
    stager: Stager, weights: WeightsFolder, trainer: ScriptedTrainer, damage: Damage
) -> None:
    with pytest.raises(IntegrityError):
        stager.stage(trainer.publish(seed=1, damage=damage), keep=[], cancelled=NEVER)
    assert staged_names(weights) == []


def test_manifest_that_is_not_the_pointers_is_refused(
    stager: Stager, trainer: ScriptedTrainer, stores: Stores
) -> None:
    first, second = trainer.publish(seed=1), trainer.publish(seed=2)
    stores.objects.put(
        first.prefix + "manifest.json", stores.objects.get(second.prefix + "manifest.json")
    )
    with pytest.raises(IntegrityError, match="digest"):
        stager.stage(first, keep=[], cancelled=NEVER)


def test_policy_that_retention_removed_is_missing(
    stager: Stager, trainer: ScriptedTrainer, stores: Stores
) -> None:
    pointer = trainer.publish(seed=1)
    stores.objects.delete_prefix(pointer.prefix)
    with pytest.raises(ObjectMissingError):
        stager.stage(pointer, keep=[], cancelled=NEVER)


def test_older_policies_are_removed_for_room_but_the_served_one_stays(
    stores: Stores, weights: WeightsFolder, trainer: ScriptedTrainer
) -> None:
    signature = model_signature(weights.base, precision="FP32")
    room = {"bytes": free_bytes(weights.root)}
    stager = Stager(
        stores.objects, weights=weights, signature=signature, free=lambda folder: room["bytes"]
    )
    folders = [
        stager.stage(trainer.publish(seed=seed), keep=[], cancelled=NEVER).folder for seed in (1, 2)
    ]
    assert staged_names(weights) == [folders[1].name], "nobody asked to keep the first"
    served, before = (
        folders[1],
        stager.stage(trainer.publish(seed=3), keep=[folders[1]], cancelled=NEVER).folder,
    )
    stager.stage(trainer.publish(seed=4), keep=[served, before], cancelled=NEVER)
    assert {served.name, before.name} < set(staged_names(weights))

    room["bytes"] = SPARE_BYTES
    with pytest.raises(DiskFullError, match="bytes are free"):
        stager.stage(trainer.publish(seed=5), keep=[served, before], cancelled=NEVER)
    assert staged_names(weights) == [served.name], "all but the served one gave way"


def test_cancelled_staging_ends_and_the_next_clears_its_files(
    stager: Stager, weights: WeightsFolder, trainer: ScriptedTrainer
) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(StagingCancelledError):
        stager.stage(trainer.publish(seed=1), keep=[], cancelled=cancelled)
    second = stager.stage(trainer.publish(seed=2), keep=[], cancelled=NEVER).folder
    assert staged_names(weights) == [second.name], "what the first attempt left is cleared away"


@pytest.mark.parametrize("goes", ["damaged", "missing"])
def test_a_second_init_that_fails_leaves_something_to_start_from(
    stores: Stores,
    store_settings: StoreSettings,
    trainer: ScriptedTrainer,
    tmp_path: Path,
    goes: str,
) -> None:
    """After a node's reboot: the policy that the engine started from gave way to the next one."""
    pod = new_pod(
        tmp_path / "pod",
        engine_url="http://127.0.0.1:9",
        settings=store_settings,
        stores=stores,
        sections={},
    )
    assignment = load_assignment(pod.environment)
    first = trainer.publish(seed=1)
    prepare(assignment, stores=stores)
    weights = assignment.weights
    assert weights.linked_policy() == first
    second = trainer.publish(seed=2, damage=lambda data: data[:-1] if goes == "damaged" else data)
    if goes == "missing":
        stores.objects.delete_prefix(second.prefix)
        shutil.rmtree(weights.of_policy(first))  # as a disk that lost it
    prepare(assignment, stores=stores)
    assert weights.current.exists(), "the engine has nothing to start from"
    assert (weights.current / "config.json").is_file()


def places(model: str, tokenizer: str | None = None) -> BaseLocations:
    own = None if tokenizer is None else ModelLocation.own(tokenizer)
    return BaseLocations(model=ModelLocation.own(model), tokenizer=own)


def put_model(objects: Objects, name: str, folder: Path) -> str:
    for path in folder.iterdir():
        objects.put_file(f"{objects.prefix}{name}/{path.name}", path)
    return objects.uri(f"{objects.prefix}{name}")


def test_tokenizer_uri_replaces_the_models_tokenizer(stores: Stores, tmp_path: Path) -> None:
    objects, model = stores.objects, save_tiny(tmp_path / "model")
    (model / "vocab.txt").write_text("of the model's own tokenizer")
    other = tmp_path / "tokenizer"
    tiny_tokenizer("1023456789").save_pretrained(other)
    (other / "config.json").write_text("{}")
    uri, tokenizer = put_model(objects, "model", model), put_model(objects, "tokenizer", other)
    folder = tmp_path / "weights" / "base"
    stage_base(objects, places=places(uri, tokenizer), folder=folder)
    assert not (folder / "vocab.txt").exists()
    for name, source in (("tokenizer.json", other), ("config.json", model)):
        assert (folder / name).read_bytes() == (source / name).read_bytes()
    with pytest.raises(RefusedError, match="holds no tokenizer") as refused:
        stage_base(objects, places=places(uri, f"{uri}-of-nobody"), folder=tmp_path / "other")
    assert refused.value.refusal.field == "spec.model.tokenizerUri"


def test_model_without_room_on_the_disk_is_not_downloaded(
    stores: Stores, tmp_path: Path, trainer: ScriptedTrainer
) -> None:
    objects, folder = stores.objects, tmp_path / "other" / "base"
    uri = objects.uri(f"{objects.prefix}big")
    objects.put(f"{objects.prefix}big/model.safetensors", bytes(1000))
    with pytest.raises(DiskFullError, match="1000 bytes does not fit"):
        stage_base(objects, places=places(uri), folder=folder, free=lambda _: SPARE_BYTES + 999)
    assert list(folder.parent.iterdir()) == []
    tokenizer = objects.uri(f"{objects.prefix}words")
    objects.put(f"{objects.prefix}words/tokenizer.json", bytes(10))
    with pytest.raises(DiskFullError, match="1010 bytes does not fit"):
        stage_base(
            objects,
            places=places(uri, tokenizer),
            folder=folder,
            free=lambda _: SPARE_BYTES + 1009,
        )
    assert list(folder.parent.iterdir()) == []
