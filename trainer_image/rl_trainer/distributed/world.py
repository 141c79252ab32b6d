"""The processes that train one model together."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from rl_contracts.spec.parallelism import MeshSizes
from rl_trainer.distributed.mesh import Mesh
from rl_trainer.distributed.signed import Signer

T = TypeVar("T")

COLLECTIVE = "collective"
"""The place for which the values of ``gather`` and ``broadcast`` are signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """This process among those that hold a part of the model and of each batch.

    Collective calls: every rank must make the same ones in the same order. torch's own collectives
    of objects are not used: they unpickle whatever arrives.
    """

    rank: int = 0
    size: int = 1
    mesh: Mesh | None = None
    """None where nothing is divided."""
    store: dist.Store | None = None
    """The rendezvous store; None with a single rank."""
    signer: Signer | None = None
    """Signs what is sent to other ranks; None with a single rank."""

    def gather(self, value: T) -> list[T]:
        """The value of each rank, by rank; equal on all of them.

        Raises:
            TrainingFailedError: one of them does not come from a rank.
        """
        if self.size == 1:
            return [value]
        own = _tensor(self._signer.sign(value, place=COLLECTIVE))
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(own)]))
        most = max(int(size) for size in sizes)
        padded = [torch.empty(most, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(padded, torch.cat([own, torch.zeros(most - len(own), dtype=torch.uint8)]))
        return [
            self._signer.value(_bytes(each[: int(size)]), place=COLLECTIVE)
            for each, size in zip(padded, sizes, strict=True)
        ]

    def gather_shares(self, value: T) -> list[T]:
        """The value of each data rank, in their order; equal on all ranks.

        Ranks that compute the same share of a batch together count once.

        Raises:
            TrainingFailedError: see ``gather``.
        """
        return self.gather(value)[:: self.sizes.tp * self.sizes.cp]

    def gather_tokens(self, value: T) -> list[T]:
        """The value of each rank with tokens of its own; equal on all ranks.

        Ranks that compute the same tokens together (``tp``) count once.

        Raises:
            TrainingFailedError: see ``gather``.
        """
        return self.gather(value)[:: self.sizes.tp]

    @property
    def data_rank(self) -> int:
        """Which share of each batch is this rank's, from 0; ``tp`` and ``cp`` ranks share it."""
        return self.rank // (self.sizes.tp * self.sizes.cp) % self.data_ranks

    @property
    def token_rank(self) -> int:
        """Which tokens of a batch are this rank's, from 0; ranks of ``tp`` alone share theirs."""
        return self.rank // self.sizes.tp

    @property
    def data_ranks(self) -> int:
        """Number of shares of a batch."""
        return self.sizes.data_ranks

    def send(self, value: object) -> None:
        """Send a value of rank 0 to the others, which ``receive`` it."""
        signed = _tensor(self._signer.sign(value, place=COLLECTIVE))
        dist.broadcast(torch.tensor([len(signed)]), src=0)
        dist.broadcast(signed, src=0)

    def receive(self) -> Any:
        """The value that rank 0 sends.

        Raises:
            TrainingFailedError: it does not come from rank 0.
        """
        size = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(size, src=0)
        signed = torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(signed, src=0)
        return self._signer.value(_bytes(signed), place=COLLECTIVE)

    def store_for(self, purpose: str) -> SignedStore:
        """The part of the rendezvous store whose keys serve this purpose alone."""
        assert self.store is not None, "a trainer of one rank has no store"
        return SignedStore(dist.PrefixStore(purpose, self.store), self._signer, purpose=purpose)

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @property
    def sizes(self) -> MeshSizes:
        """Of the mesh."""
        return MeshSizes(fsdp=self.size) if self.mesh is None else self.mesh.sizes

    @property
    def _signer(self) -> Signer:
        assert self.signer is not None, "ranks of a trainer with several processes have a signer"
        return self.signer


class SignedStore:
    """Signed values by name, which all ranks share; raises RuntimeError when rank 0 is gone."""

    def __init__(self, store: dist.Store, signer: Signer, *, purpose: str) -> None:
        self._store, self._signer, self._purpose = store, signer, purpose

    def set(self, name: str, value: object) -> None:
        """Write a value."""
        # Base64, because torch hands values over as text.
        self._store.set(name, _text(self._signer.sign(value, place=self._place(name))))

    def has(self, name: str) -> bool:
        """Whether there is a value."""
        return self._store.check([name])

    def get(self, name: str) -> Any:
        """The value; waits for it.

        Raises:
            TrainingFailedError: no rank wrote it under this name.
        """
        return self._signer.value(_untext(self._store.get(name)), place=self._place(name))

    def delete(self, name: str) -> None:
        """Delete a value."""
        self._store.delete_key(name)

    def _place(self, name: str) -> str:
        return f"{self._purpose}/{name}"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _untext(stored: bytes) -> bytes:
    try:
        return base64.b64decode(stored)
    except ValueError:
        return b""  # not signed


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _bytes(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()


ALONE = World()
"""A trainer of a single process, which holds all of the model."""
