"""Models whose parameters, gradients and moments lie in parts on all ranks (FSDP2).

PyTorch's ``fully_shard``: each layer is gathered when it runs and let go after it; what is outside
of the layers (embedding, last norm, output layer) is gathered with the first layer and stays until
the backward pass is over, so that the output layer can be run part by part in between.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor, Shard

from rl_trainer.distributed.world import World

ENTRY = "run_layers"


def shard(
    module: Any,
    world: World,
    *,
    layers: frozenset[str],
    entry: Callable[..., Tensor],
    offload: bool,
) -> Callable[..., Tensor]:
    """Divide a module's parameters among the ranks; all of them hold the same ones before.

    Args:
        module: on its device, or in host memory, from where its parts are taken in turn.
        world: of ranks that have a mesh.
        layers: class names of the layers that are gathered separately.
        entry: called with the module and more; runs what has to be gathered.
        offload: what this rank holds of parameters and gradients lies in host memory.

    Returns:
        ``entry`` with the module bound, to be called instead of it.
    """
    assert world.mesh is not None
    # Pinned where a GPU reads it, so that copies run beside what is computed.
    pinned = world.mesh.device_type == "cuda"
    policy = CPUOffloadPolicy(pin_memory=pinned) if offload else OffloadPolicy()
    parts = [part for part in module.modules() if type(part).__name__ in layers]
    for part in parts:
        fully_shard(part, mesh=world.mesh, offload_policy=policy)
    fully_shard(module, mesh=world.mesh, reshard_after_forward=False, offload_policy=policy)
    for divided in (*parts, module):
        # Losses are divided by numbers of all ranks already: gradients are summed. Gloo cannot
        # multiply on the way.
        divided.set_force_sum_reduction_for_comms(True)
        divided.set_gradient_divide_factor(1.0)
    setattr(module, ENTRY, types.MethodType(entry, module))
    register_fsdp_forward_method(module, ENTRY)
    bound: Callable[..., Tensor] = getattr(module, ENTRY)
    return bound


def rest(module: Any) -> None:
    """Free the parameters that a pass without backward left gathered; the next gathers again."""
    if isinstance(module, FSDPModule):
        module.reshard()


def full(tensor: Tensor) -> Tensor:
    """The whole tensor. A collective for a divided tensor: every rank must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def clip_gradients(parameters: Iterable[torch.nn.Parameter], *, max_norm: float) -> float:
    """Scale gradients to at most ``max_norm`` (L2, over all ranks); returns the norm before.

    A collective for divided parameters: every rank must call it. The norm is NaN or infinite where
    a gradient is.
    """
    return float(full(torch.nn.utils.clip_grad_norm_(parameters, max_norm)))


def part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def copies(
    named: Mapping[str, Tensor], world: World, *, dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """Whole tensors copied to the CPU of rank 0; a collective call. Other ranks get none.

    They are gathered in turn, so that no device holds more than its part and one tensor.

    Args:
        named: the same names on all ranks.
        world: the ranks.
        dtype: of the copies of floating-point tensors; None keeps theirs.
    """
    copied = {}
    for name, source in named.items():
        wanted = dtype if dtype is not None and source.is_floating_point() else source.dtype
        tensor = source.detach()
        if isinstance(tensor, DTensor):
            tensor = full(tensor.to(wanted))
        if world.leads:
            copied[name] = tensor.to("cpu", wanted, copy=True)
    return copied


def own_copies(
    named: Mapping[str, Tensor], world: World, *, owners: Mapping[str, int], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Whole tensors copied to the CPU of the rank that owns each; a collective call.

    In turn, so that no device holds more than its part and one tensor.

    Args:
        named: the same names on all ranks.
        world: the ranks.
        owners: which of them gets each tensor.
        dtype: of the copies of floating-point tensors.
    """
    copied = {}
    for name, source in named.items():
        wanted, owner = dtype if source.is_floating_point() else source.dtype, owners[name]
        tensor = source.detach().to(wanted)
        whole = whole_at(tensor, world, owner=owner) if isinstance(source, DTensor) else tensor
        if world.rank == owner:
            assert whole is not None
            copied[name] = whole.to("cpu", copy=True)
    return copied


def whole_at(tensor: Tensor, world: World, *, owner: int) -> Tensor | None:
    """A divided tensor whole on its owner, None on the other ranks; a collective call.

    Its other ranks send their rows and receive nothing.
    """
    assert isinstance(tensor, DTensor), "only a divided tensor is gathered to an owner"
    assert tensor.placements == (Shard(0),), f"divided by {tensor.placements}"
    local, rows = tensor.to_local(), -(-tensor.shape[0] // world.size)
    padded = local.new_zeros((rows, *tensor.shape[1:]))
    padded[: local.shape[0]] = local
    raw = padded.reshape(-1).view(torch.uint8)  # bytes: not every backend knows every dtype
    if world.rank != owner:
        dist.gather(raw, dst=owner)
        return None
    whole = raw.new_empty(world.size * raw.numel())
    dist.gather(raw, list(whole.view(world.size, -1)), dst=owner)
    return whole.view(tensor.dtype).reshape(-1, *tensor.shape[1:])[: tensor.shape[0]]


def placed(value: Tensor, like: Tensor) -> Tensor:
    """A copy of a whole tensor on the device of ``like``, of which it is this rank's part."""
    if not isinstance(like, DTensor) or value.shape != like.shape:
        return value.to(like.device, copy=True)
    assert like.placements == (Shard(0),), f"divided by {like.placements}"
    mesh, local = like.device_mesh, torch.empty_like(like.detach(), dtype=value.dtype)
    rows = -(-value.shape[0] // mesh.size())
    first = mesh.get_local_rank() * rows
    part(local).copy_(value[first : first + rows])
    return local


def fill(target: Tensor, value: Tensor) -> None:
    """Write a whole tensor into one that may be divided; RuntimeError where shapes differ."""
    with torch.no_grad():
        target.copy_(placed(value, target))
