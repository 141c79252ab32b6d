"""Counts the bytes of tensors that are alive, operation by operation: exact on any machine."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocation(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """While entered, sees every tensor that torch makes; ``peak`` is the most bytes at a time.

    What was there before is not counted, and of the rest only arrays whose rows have ``width``
    elements.
    """

    def __init__(self, *, width: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.alive = self.peak = 0
        self._width = width
        self._seen: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = {
            tree_leaf.untyped_storage()._cdata
            for tree_leaf in tree_leaves((args, kwargs))
            if isinstance(tree_leaf, Tensor)
        }
        result = function(*args, **(kwargs or {}))
        for tree_leaf in tree_leaves(result):
            if isinstance(tree_leaf, Tensor) and tree_leaf.shape[-1:] == (self._width,):
                self._count(tree_leaf.untyped_storage(), given)
        return result

    def _count(self, storage: torch.UntypedStorage, given: set[int]) -> None:
        key = storage._cdata
        if key in given or key in self._seen:
            return
        size = storage.nbytes()
        self._seen.add(key)
        self.alive += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.alive -= size
