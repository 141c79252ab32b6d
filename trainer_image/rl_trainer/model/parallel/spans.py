"""Where the parts of divided tensors lie: computed on each rank, and gathered of all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import Placement, _StridedShard

from rl_trainer.distributed.world import World

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Ascending runs [first, last) of the indices of a dimension."""
Spans: TypeAlias = tuple[Ranges, ...]
"""Where a part lies in a tensor: for each dimension the indices that it has."""


class Layout:
    """Knows where the parts of a model's tensors lie; tensors that are divided alike share that."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._own: dict[object, Spans] = {}
        self._all: dict[object, list[Spans]] = {}

    def own(self, tensor: Tensor) -> Spans:
        """The spans of what this rank holds of a tensor."""
        key = _key(tensor)
        if key not in self._own:
            self._own[key] = _of(tensor) if isinstance(tensor, DTensor) else whole(tensor.shape)
        return self._own[key]

    def of_ranks(self, tensor: Tensor) -> list[Spans]:
        """The same of each rank, by rank; a collective call for a division that is not known."""
        if not isinstance(tensor, DTensor):
            return [whole(tensor.shape)] * self._world.size
        key = _key(tensor)
        if key not in self._all:
            self._all[key] = self._world.gather(self.own(tensor))
        return self._all[key]


def whole(shape: Sequence[int]) -> Spans:
    """The spans of all of a tensor."""
    return tuple(((0, size),) if size else () for size in shape)


def lengths(spans: Spans) -> list[int]:
    """The shape of a part."""
    return [sum(last - first for first, last in ranges) for ranges in spans]


def count(spans: Spans) -> int:
    """Numbers of a part."""
    return math.prod(lengths(spans))


def overlap(wanted: Spans, held: Spans) -> bool:
    """Whether two parts of a tensor have numbers in common."""
    return all(_common(*ranges) for ranges in zip(wanted, held, strict=True))


def copy(target: Tensor, wanted: Spans, numbers: Tensor, held: Spans) -> int:
    """Copy what two parts of a tensor have in common; returns how many numbers that is.

    Args:
        target: the part to be filled, of any shape with the size of ``wanted``.
        wanted: where it lies.
        numbers: another part, of any shape with the size of ``held``.
        held: where that lies.
    """
    into, source = target.view(lengths(wanted)), numbers.view(lengths(held))
    common = [_common(*ranges) for ranges in zip(wanted, held, strict=True)]
    copied = 0
    for chosen in itertools.product(*common):
        here = source[tuple(there for _, there in chosen)]
        into[tuple(place for place, _ in chosen)] = here.to(into.device)
        copied += here.numel()
    return copied


def _common(wanted: Ranges, held: Ranges) -> list[tuple[slice, slice]]:
    """Runs that both have: where each lies among the wanted indices, and among the held ones."""
    common = []
    for (first, last), at in zip(wanted, _starts(wanted), strict=True):
        for (begin, end), start in zip(held, _starts(held), strict=True):
            low, high = max(first, begin), min(last, end)
            if low < high:
                place = slice(at + low - first, at + high - first)
                common.append((place, slice(start + low - begin, start + high - begin)))
    return common


def _starts(ranges: Ranges) -> list[int]:
    sizes = [last - first for first, last in ranges]
    return list(itertools.accumulate(sizes, initial=0))[:-1]


def _key(tensor: Tensor) -> object:
    if not isinstance(tensor, DTensor):
        return tensor.shape
    return (tensor.shape, tensor.placements, tensor.device_mesh)


def _of(tensor: DTensor) -> Spans:
    """Where this rank's part lies, found by dividing the indices of each dimension alike."""
    ranges = []
    for dimension, size in enumerate(tensor.shape):
        # An index is divided as the tensor is in this dimension, and lies in dimension 0.
        placements = [_first(each, dimension, tensor.ndim) for each in tensor.placements]
        indices = distribute_tensor(
            torch.arange(size, device=tensor.device),
            tensor.device_mesh,
            placements,
            src_data_rank=None,
        ).to_local()
        ranges.append(_ranges(indices.tolist()))
    return tuple(ranges)


def _first(placement: Placement, dimension: int, dimensions: int) -> Placement:
    """A placement in a dimension as one in dimension 0; whole for one in another dimension."""
    if not isinstance(placement, (Shard, _StridedShard)):
        return Replicate()
    if placement.dim % dimensions != dimension:
        return Replicate()
    if isinstance(placement, _StridedShard):
        return _StridedShard(0, split_factor=placement.split_factor)
    return Shard(0)


def _ranges(indices: Sequence[int]) -> Ranges:
    """Ascending runs of indices as [first, last)."""
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and ranges[-1][1] == index:
            ranges[-1][1] = index + 1
        else:
            ranges.append([index, index + 1])
    return tuple((first, last) for first, last in ranges)
