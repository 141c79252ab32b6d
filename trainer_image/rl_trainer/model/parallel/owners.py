"""Tensors of a divided model, whole on the ranks that own them: each rank sends its part once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import Placement, _StridedShard

from rl_trainer.distributed.world import World
from rl_trainer.model.parallel.sharding import part

Spans: TypeAlias = tuple[tuple[tuple[int, int], ...], ...]
"""Where a rank's part lies in a tensor: for each dimension the ranges [first, last), in order."""


def own_copies(
    named: Mapping[str, Tensor], world: World, *, owners: Mapping[str, int], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Whole tensors copied to the CPU of the rank that owns each; a collective call.

    In turn, so that a device holds at most its part, and the parts of one tensor where it owns it.

    Args:
        named: the same names on all ranks.
        world: the ranks.
        owners: which of them gets each tensor.
        dtype: of the copies of floating-point tensors.
    """
    copied = {}
    gatherer = _Gatherer(world)
    for name, source in named.items():
        wanted, owner = dtype if source.is_floating_point() else source.dtype, owners[name]
        tensor = source.detach().to(wanted)
        if isinstance(tensor, DTensor):
            whole = gatherer.whole_at(tensor, owner=owner)
        else:
            whole = tensor.to("cpu", copy=True) if world.rank == owner else None
        if whole is not None:
            copied[name] = whole
    return copied


class _Gatherer:
    """Gathers the tensors of one copy; tensors of one shape that are divided alike share spans."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[object, list[Spans]] = {}

    def whole_at(self, tensor: DTensor, *, owner: int) -> Tensor | None:
        """A divided tensor whole in host memory of its owner, None on the other ranks."""
        world, local = self._world, part(tensor)
        parts = self._parts(tensor)
        padded = local.new_zeros(max(map(_count, parts)))
        padded[: local.numel()] = local.reshape(-1)
        raw = padded.view(torch.uint8)  # not every backend knows every dtype
        if world.rank != owner:
            dist.gather(raw, dst=owner)
            return None
        received = raw.new_empty((world.size, raw.numel()))
        dist.gather(raw, list(received), dst=owner)
        whole = torch.empty(tensor.shape, dtype=local.dtype)
        # Ranks that hold the same part send the same numbers.
        for spans, sent in dict(zip(parts, received, strict=True)).items():
            _place(whole, sent.view(local.dtype)[: _count(spans)], spans)
        return whole

    def _parts(self, tensor: DTensor) -> list[Spans]:
        """The spans of each rank's part, by rank; a collective call for what is not known yet."""
        key = (tensor.shape, tensor.placements, tensor.device_mesh)
        if key not in self._known:
            self._known[key] = self._world.gather(_spans(tensor))
        return self._known[key]


def _spans(tensor: DTensor) -> Spans:
    """Where this rank's part lies, found by dividing the indices of each dimension alike."""
    found = []
    for dimension, size in enumerate(tensor.shape):
        # An index is divided as the tensor is in this dimension, and lies in dimension 0.
        placements = [_first(each, dimension, tensor.ndim) for each in tensor.placements]
        indices = distribute_tensor(
            torch.arange(size, device=tensor.device),
            tensor.device_mesh,
            placements,
            src_data_rank=None,
        ).to_local()
        found.append(_ranges(indices.tolist()))
    return tuple(found)


def _first(placement: Placement, dimension: int, dimensions: int) -> Placement:
    """A placement in a dimension as one in dimension 0; whole for one in another dimension."""
    if not isinstance(placement, (Shard, _StridedShard)):
        return Replicate()
    if placement.dim % dimensions != dimension:
        return Replicate()
    if isinstance(placement, _StridedShard):
        return _StridedShard(0, split_factor=placement.split_factor)
    return Shard(0)


def _ranges(indices: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Ascending runs of indices as [first, last)."""
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and ranges[-1][1] == index:
            ranges[-1][1] = index + 1
        else:
            ranges.append([index, index + 1])
    return tuple((first, last) for first, last in ranges)


def _count(spans: Spans) -> int:
    return math.prod(sum(last - first for first, last in ranges) for ranges in spans)


def _place(whole: Tensor, sent: Tensor, spans: Spans) -> None:
    """Copy a part to where it lies."""
    lengths = [[last - first for first, last in ranges] for ranges in spans]
    numbers = sent.reshape([sum(each) for each in lengths])
    pieces = [
        list(zip(ranges, itertools.accumulate(each, initial=0), strict=False))
        for ranges, each in zip(spans, lengths, strict=True)
    ]
    for chosen in itertools.product(*pieces):
        there = tuple(slice(first, last) for (first, last), _ in chosen)
        here = tuple(slice(start, start + last - first) for (first, last), start in chosen)
        whole[there] = numbers[here].to(whole.device)
