"""Tensors of a divided model, whole on the ranks that own them: each rank sends its part once."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from rl_contracts.model_files import is_float32
from rl_trainer.distributed.world import World
from rl_trainer.model.parallel import spans
from rl_trainer.model.parallel.sharding import part
from rl_trainer.model.parallel.spans import Layout


def own_copies(
    named: Mapping[str, Tensor], world: World, *, owners: Mapping[str, int], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Whole tensors copied to the CPU of the rank that owns each; a collective call.

    In turn, so that a device holds at most its part, and the parts of one tensor where it owns it.

    Args:
        named: the same names on all ranks.
        world: the ranks.
        owners: which of them gets each tensor.
        dtype: of the copies of floating-point tensors, but for those that stay in float32.
    """
    copied = {}
    layout = Layout(world)
    for name, source in named.items():
        owner, tensor = owners[name], source.detach().to(_dtype(name, source, dtype))
        if isinstance(tensor, DTensor):
            whole = _whole_at(tensor, world, layout, owner=owner)
        else:
            whole = tensor.to("cpu", copy=True) if world.rank == owner else None
        if whole is not None:
            copied[name] = whole
    return copied


def _dtype(name: str, source: Tensor, wanted: torch.dtype) -> torch.dtype:
    if not source.is_floating_point():
        return source.dtype
    return torch.float32 if is_float32(name) else wanted


def _whole_at(tensor: DTensor, world: World, layout: Layout, *, owner: int) -> Tensor | None:
    """A divided tensor whole in host memory of its owner, None on the other ranks."""
    local, parts = part(tensor), layout.of_ranks(tensor)
    padded = local.new_zeros(max(map(spans.count, parts)))
    padded[: local.numel()] = local.reshape(-1)
    raw = padded.view(torch.uint8)  # not every backend knows every dtype
    if world.rank != owner:
        dist.gather(raw, dst=owner)
        return None
    received = raw.new_empty((world.size, raw.numel()))
    dist.gather(raw, list(received), dst=owner)
    whole = torch.empty(tensor.shape, dtype=local.dtype)
    everything = spans.whole(tensor.shape)
    # Ranks that hold the same part send the same numbers.
    for held, sent in dict(zip(parts, received, strict=True)).items():
        spans.copy(whole, everything, sent.view(local.dtype)[: spans.count(held)], held)
    return whole
