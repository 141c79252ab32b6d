"""The processes that train one model together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """This process among those that hold a part of the model and of each batch.

    Collective calls: every rank must make the same ones in the same order.
    """

    rank: int = 0
    size: int = 1
    mesh: DeviceMesh | None = None
    """One dimension over all ranks; None where nothing is divided."""
    store: dist.Store | None = None
    """The rendezvous store; None with a single rank."""

    def gather(self, value: T) -> list[T]:
        """The value of each rank, by rank; equal on all of them."""
        if self.size == 1:
            return [value]
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, value)
        return gathered

    def store_for(self, purpose: str) -> dist.Store:
        """The part of the rendezvous store whose keys serve this purpose alone."""
        assert self.store is not None, "a trainer of one rank has no store"
        return dist.PrefixStore(purpose, self.store)

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0


ALONE = World()
"""A trainer of a single process, which holds all of the model."""
