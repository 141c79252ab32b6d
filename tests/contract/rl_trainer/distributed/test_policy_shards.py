"""What all ranks publish together is what one publishes, to the last byte."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from rl_contracts.documents.manifest import Manifest
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.connect import Stores
from rl_contracts.stores.objects import Objects
from rl_trainer.distributed.channel import ShardResponder
from rl_trainer.distributed.world import World
from rl_trainer.model import weights
from rl_trainer.model.files import safetensors_files
from rl_trainer.model.weights import Snapshot
from rl_trainer.publish.policy_shards import PolicyShards
from tests.contract.policy_broadcast.world import Line, Subscriber, content, raw
from tests.contract.rl_trainer.distributed import ranks
from tests.models.tiny_model import VOCABULARY, save_tiny
from tests.waiting import HUNG_SECONDS

RANKS = 3
VERSIONS = (1, 2, 3)
BF16 = {"training": {"precision": "BF16", "optimizer": {"learningRate": 1e-4}}}


@dataclass(frozen=True)
class Seen:
    """What one rank knows of a version."""

    shard: dict[str, int]
    """Bytes of each tensor that it publishes."""
    pointer: PolicyPointer | None = None
    whole: Snapshot | None = None
    """Rank 0: all weights, gathered."""


def save_experts(folder: Path) -> Path:
    """A mixture of experts, which transformers loads fused and stores one by one."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        moe_intermediate_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        num_experts=4,
        num_experts_per_tok=2,
        decoder_sparse_step=1,
    )
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    return folder


def save_dense(folder: Path) -> Path:
    """Odd widths: parts of unequal size on each rank, empty ones among them."""
    return save_tiny(folder, num_hidden_layers=3, intermediate_size=49)


MODELS = {"dense": save_dense, "experts": save_experts}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    for name, save in MODELS.items():
        save(made / name)
    return made


def publish(settings: dict[str, str], world: World, folder: Path) -> dict[str, list[Seen]]:
    """Steps of each model, each of them published by all ranks."""
    objects = Objects(StoreSettings.from_mapping(settings), patience_seconds=HUNG_SECONDS)
    line = Line(objects, world=world, remember=False)
    shards = line.shards if world.leads else PolicyShards(objects, ThreadPoolExecutor(1))
    responder = ShardResponder(world, shards, written="policy")
    if not world.leads:
        responder.begin()
    published: dict[str, list[Seen]] = {}
    for name in MODELS:
        line.base, line.epoch = None, line.epoch + 1
        learner = ranks.learner(folder / name, world, **BF16)
        for step in VERSIONS:
            learner.update(ranks.samples(seed=step), step=step)
            whole = weights.snapshot(learner.policy, precision="BF16", world=world)
            own = weights.own_tensors(learner.policy, precision="BF16", world=world)
            number = world.gather(line.version + 1)[0]
            shards.take(number, own)
            world.gather("taken")
            pointer = line.publish(own) if world.leads else None
            world.gather("published")
            sizes = {key: tensor.nbytes for key, tensor in own.items()}
            published.setdefault(name, []).append(
                Seen(sizes, pointer, whole if world.leads else None)
            )
    responder.end()
    return published


@pytest.mark.soak
def test_all_ranks_publish_what_a_single_rank_does(
    folder: Path, stores: Stores, store_settings: StoreSettings, tmp_path: Path
) -> None:
    work = partial(publish, store_settings.to_mapping())
    first, *others = ranks.together(work, size=RANKS, folder=folder, scratch=tmp_path)
    for name in MODELS:
        one_rank = Line(stores.objects, epoch=100)
        held: list[Path] = []
        joiner: Subscriber | None = None
        for number, seen in enumerate(first[name]):
            assert seen.pointer is not None
            assert seen.whole is not None
            check_division([seen, *(each[name][number] for each in others)], seen.whole)
            manifest = read(stores.objects, seen.pointer)
            assert manifest.content == ("full" if number == 0 else "delta")
            one_rank.publish(seen.whole)
            assert tensors(manifest) == tensors(one_rank.manifest(number + 1))
            joiner = joiner or Subscriber.make(tmp_path / f"{name}-all", stores.objects, seen.whole)
            staged = joiner.stage(seen.pointer, keep=held)
            held = [staged.folder]
            assert content(staged) == raw(
                {key: safetensors_files.flat(tensor) for key, tensor in seen.whole.items()}
            )


def check_division(seen: list[Seen], whole: Snapshot) -> None:
    """Each tensor is one rank's, and none has much more than the others."""
    names = [name for view in seen for name in view.shard]
    assert sorted(names) == sorted(whole)
    sizes = [sum(view.shard.values()) for view in seen]
    largest_layer = sum(tensor.nbytes for tensor in whole.values()) / 3
    assert max(sizes) - min(sizes) <= largest_layer


def read(objects: Objects, pointer: PolicyPointer) -> Manifest:
    stored = objects.get(pointer.prefix + "manifest.json")
    return Manifest.from_bytes(stored, sha256=pointer.manifest_sha256)


def tensors(manifest: Manifest) -> set[tuple[str, str, tuple[int, ...], str]]:
    """All that a manifest says of tensors but the files' names."""
    return {
        (tensor.name, tensor.dtype, tuple(tensor.shape), tensor.sha256)
        for tensor in manifest.tensors
    }
