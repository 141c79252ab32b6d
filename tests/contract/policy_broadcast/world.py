"""A publisher and subscribers of one run, with a real bucket between them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from rl_contracts.documents.manifest import BasePolicy, Manifest
from rl_contracts.documents.run import PolicyPointer
from rl_contracts.spec.storage import Delta
from rl_contracts.stores.objects import Objects
from rl_policy_codec.files import mapped
from rl_policy_codec.state import State
from rl_sampler.engine.weights import Staged, WeightsFolder
from rl_sampler.policy.relay.client import Relay
from rl_sampler.policy.stage import Stager
from rl_sampler.policy.verify import Signature, TensorKind
from rl_trainer.distributed.channel import ShardRequester
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model.files import safetensors_files
from rl_trainer.publish import broadcast
from rl_trainer.publish.broadcast import Base, Sent
from rl_trainer.publish.policy_shards import PolicyShards

NEVER = threading.Event()
OFTEN = Delta(anchor_every=1000, max_fraction=1.0)


def raw(state: State) -> dict[str, bytes]:
    """Bytes of every tensor."""
    return {name: tensor.tobytes() for name, tensor in state.items()}


def strange(seed: int = 0, *, size: int = 2000) -> dict[str, Tensor]:
    """Tensors of every dtype, with NaN payloads, -0.0, an empty one and a scalar."""
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(0, 1 << 15, (size,), generator=generator, dtype=torch.int16)
    bits[:4] = torch.tensor([0x7F81, 0x7FC1, -0x8000, -1], dtype=torch.int16)  # NaNs and -0.0
    return {
        "bf16": bits.view(torch.bfloat16).reshape(-1, 4),
        "f32": torch.randn(30, 7, generator=generator),
        "f16": torch.randn(11, generator=generator).half(),
        "f64": torch.randn(3, generator=generator).double(),
        "scalar": torch.randn((), generator=generator).bfloat16(),
        "empty": torch.empty(0, 5),
        "i64": torch.randint(0, 9, (5,), generator=generator),
        "i32": torch.randint(0, 9, (5,), generator=generator, dtype=torch.int32),
        "u8": torch.randint(0, 9, (5,), generator=generator, dtype=torch.uint8),
        "bool": torch.rand(5, generator=generator) < 0.5,
    }


def moved(tensors: Mapping[str, Tensor], *, seed: int, share: float = 0.02) -> dict[str, Tensor]:
    """The next state: that share of every tensor's bytes flipped in their lowest bit."""
    generator = torch.Generator().manual_seed(seed)
    copies = {}
    for name, tensor in tensors.items():
        copied = tensor.clone()
        if tensor.dtype is not torch.bool:
            flat = copied.reshape(-1).view(torch.uint8)
            flat ^= (torch.rand(flat.shape, generator=generator) < share).to(torch.uint8)
            copied = flat.view(tensor.dtype).reshape(tensor.shape)
        copies[name] = copied
    return copies


@dataclass
class Line:
    """The versions that one trainer publishes, and what each of them is."""

    objects: Objects
    delta: Delta = OFTEN
    epoch: int = 1
    base: Base | None = None
    version: int = 0
    remember: bool = True
    """Keep a copy of every version's bytes to compare with."""
    states: dict[int, dict[str, bytes]] = field(default_factory=dict)
    pointers: dict[int, PolicyPointer] = field(default_factory=dict)
    sent: dict[int, Sent] = field(default_factory=dict)

    world: World = ALONE
    """Other ranks take what they have of a version under its number, before it is published."""

    def __post_init__(self) -> None:
        self.shards = PolicyShards(self.objects, ThreadPoolExecutor(2))
        self.request_all = ShardRequester(self.world, self.shards, written="policy").request_all

    def publish(self, tensors: dict[str, Tensor]) -> PolicyPointer:
        """Write the next version."""
        version = self.version + 1
        pointer = PolicyPointer(
            version=version,
            epoch=self.epoch,
            step=version,
            prefix=f"{self.objects.prefix}policies/{version:08d}-{self.epoch}-ab/",
            manifest_sha256="",
        )
        if self.remember:
            self.states[version] = raw(
                {name: safetensors_files.flat(tensor) for name, tensor in tensors.items()}
            )
        self.shards.take(version, tensors)
        sent = broadcast.send(
            self.objects,
            self.request_all,
            ranks=self.world.size,
            number=version,
            pointer=pointer,
            run="r",
            base=self.base,
            delta=self.delta,
        )
        broadcast.keep_base(self.request_all, ranks=self.world.size, base=sent.base)
        self.version, self.base, self.sent[version] = version, sent.base, sent
        pointer = pointer.model_copy(update={"manifest_sha256": sent.manifest_sha256})
        self.pointers[version] = pointer
        return pointer

    def manifest(self, version: int) -> Manifest:
        """What a version's manifest says."""
        pointer = self.pointers[version]
        stored = self.objects.get(pointer.prefix + "manifest.json")
        return Manifest.from_bytes(stored, sha256=pointer.manifest_sha256)

    def base_of(self, version: int) -> BasePolicy:
        """A version's name as a delta would give it."""
        pointer = self.pointers[version]
        return BasePolicy(
            version=version, prefix=pointer.prefix, manifest_sha256=pointer.manifest_sha256
        )

    def forge(self, version: int, manifest: Manifest, **names: int) -> PolicyPointer:
        """Put another manifest in a version's place; the pointer that vouches for it."""
        encoded, pointer = manifest.to_bytes(), self.pointers[version]
        self.objects.put(pointer.prefix + "manifest.json", encoded)
        sha256 = hashlib.sha256(encoded).hexdigest()
        return pointer.model_copy(update={"manifest_sha256": sha256, **names})


@dataclass
class Subscriber:
    """A sampler's weights folder."""

    weights: WeightsFolder
    stager: Stager
    bucket: Counted

    @classmethod
    def make(
        cls,
        folder: Path,
        objects: Objects,
        tensors: Mapping[str, Tensor],
        *,
        relay: Relay | None = None,
    ) -> Subscriber:
        """An empty one of this model."""
        weights = WeightsFolder(folder)
        weights.base.mkdir(parents=True)
        (weights.base / "config.json").write_text("{}")
        kinds = {
            name: TensorKind(safetensors_files.form(tensor).dtype, tuple(tensor.shape))
            for name, tensor in tensors.items()
        }
        counted = Counted(objects)
        stager = Stager(
            cast(Objects, counted), weights=weights, signature=Signature(kinds), relay=relay
        )
        return cls(weights, stager, counted)

    @property
    def received(self) -> list[int]:
        """Bytes of each range that was downloaded."""
        return self.bucket.received

    def stage(
        self,
        pointer: PolicyPointer,
        *,
        keep: list[Path] | None = None,
        cancelled: threading.Event = NEVER,
    ) -> Staged:
        """Stage one version."""
        return self.stager.stage(pointer, keep=keep or [], cancelled=cancelled)

    @property
    def names(self) -> list[str]:
        """What lies there."""
        return sorted(path.name for path in self.weights.policies.glob("*"))


class Counted:
    """A bucket that notes what is downloaded from it in ranges."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.received: list[int] = []

    def get(self, key: str) -> bytes:
        return self._objects.get(key)

    def read_range(
        self, key: str, *, offset: int, size_bytes: int, consume: Callable[[bytes], None]
    ) -> None:
        self._objects.read_range(key, offset=offset, size_bytes=size_bytes, consume=consume)
        self.received.append(size_bytes)


def content(staged: Staged) -> dict[str, bytes]:
    """Bytes of every tensor of a staged policy."""
    return raw(mapped(sorted(staged.folder.glob("*.safetensors"))))
