"""Models whose parameters, gradients and moments lie in parts on all ranks (FSDP2).

PyTorch's ``fully_shard``: each layer is gathered when it runs and let go after it; what is outside
of the layers (embedding, last norm, output layer) is gathered with the first layer and stays until
the backward pass is over, so that the output layer can be run part by part in between.
"""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from torch.distributed.tensor import DTensor, Replicate
from transformers.distributed.sharding_utils import DtensorShardOperation

from rl_trainer.distributed.mesh import Mesh
from rl_trainer.distributed.world import World

ENTRY = "run_layers"
CLIP_EPSILON = 1e-6
"""Added to a norm that gradients are divided by, as torch's ``clip_grad_norm_`` does."""


def shard(
    module: Any,
    mesh: Mesh,
    *,
    layers: frozenset[str],
    experts: Sequence[Any],
    whole: Sequence[Any] = (),
    entry: Callable[..., Tensor],
    offload: bool,
) -> Callable[..., Tensor]:
    """Divide a module's parameters among the ranks; all of them hold the same ones before.

    Args:
        module: on its device, or in host memory, from where its parts are taken in turn.
        mesh: of all ranks.
        layers: class names of the layers that are gathered separately.
        experts: modules of which each rank of ``ep`` has a part already.
        whole: frozen modules that each rank keeps whole: not every pass runs them, and gathering
            takes all ranks.
        entry: called with the module and more; runs what has to be gathered.
        offload: what this rank holds of parameters and gradients lies in host memory.

    Returns:
        ``entry`` with the module bound, to be called instead of it.
    """
    # Pinned where a GPU reads it, so that copies run beside what is computed.
    pinned = mesh.device_type == "cuda"
    policy = CPUOffloadPolicy(pin_memory=pinned) if offload else OffloadPolicy()
    kept = {each for part in whole for each in part.modules()}
    parts = [
        part for part in module.modules() if type(part).__name__ in layers and part not in kept
    ]
    for part in experts:
        fully_shard(part, mesh=mesh.experts_fsdp, offload_policy=policy)
    for part in parts:
        fully_shard(part, mesh=mesh.fsdp, offload_policy=policy)
    fully_shard(
        module,
        mesh=mesh.fsdp,
        reshard_after_forward=False,
        offload_policy=policy,
        ignored_params={each for part in whole for each in part.parameters()},
    )
    for divided in (*experts, *parts, module):
        # Losses are divided by numbers of all ranks already: gradients are summed. Gloo cannot
        # multiply on the way.
        divided.set_force_sum_reduction_for_comms(True)
        divided.set_gradient_divide_factor(1.0)
    setattr(module, ENTRY, types.MethodType(entry, module))
    register_fsdp_forward_method(module, ENTRY)
    bound: Callable[..., Tensor] = getattr(module, ENTRY)
    return bound


@contextlib.contextmanager
def as_built(module: Any) -> Iterator[None]:
    """A module of the class that it was built as: FSDP2 derives one, with another name.

    transformers finds by the class's name how a model's tensors are called in files.
    """
    divided: type = type(module)
    if isinstance(module, FSDPModule):
        built = next(each for each in divided.__mro__ if not issubclass(each, FSDPModule))
        module.__class__ = built  # type: ignore[assignment]  # mypy knows FSDPModule alone
    try:
        yield
    finally:
        module.__class__ = divided


def rest(module: Any) -> None:
    """Free the parameters that a pass without backward left gathered; the next gathers again."""
    if isinstance(module, FSDPModule):
        module.reshard()


def full(tensor: Tensor) -> Tensor:
    """The whole tensor. A collective for a divided tensor: every rank must call it."""
    if not isinstance(tensor, DTensor):
        return tensor
    # Axis by axis: all at once, torch warns that rows in strides take it several collectives.
    for axis in range(tensor.device_mesh.ndim - 1):
        placements = list(tensor.placements)
        placements[axis] = Replicate()
        tensor = tensor.redistribute(placements=placements)
    return tensor.full_tensor()


def scale_gradients(parameters: Iterable[torch.nn.Parameter], factor: float) -> None:
    """Multiply what this rank holds of all gradients."""
    torch._foreach_mul_([part(each.grad) for each in parameters if each.grad is not None], factor)


def clip_gradients(parameters: Iterable[torch.nn.Parameter], *, max_norm: float) -> float:
    """Scale gradients to at most ``max_norm`` (L2, over all ranks); returns the norm before.

    A collective for divided parameters: every rank must call it. The norm is NaN or infinite where
    a gradient is. torch computes with tensors of one mesh at a time, so norms are taken by mesh.
    """
    gradients = [each.grad for each in parameters if each.grad is not None]
    norm = math.sqrt(sum(_squares(members) for members in by_mesh(gradients)))
    scale = max_norm / (norm + CLIP_EPSILON)
    if scale < 1 or math.isnan(scale):
        torch._foreach_mul_([part(gradient) for gradient in gradients], scale)
    return norm


def _squares(gradients: Sequence[Tensor]) -> float:
    """The sum of all squares of gradients of one mesh; numbers that several ranks hold count once.

    torch's own norm of DTensors warns that it takes a collective for each axis, as this does.
    """
    mesh = gradients[0].device_mesh if isinstance(gradients[0], DTensor) else None
    norms = torch.stack(torch._foreach_norm([part(gradient) for gradient in gradients])).double()
    once = torch.tensor([1 / _holders(gradient) for gradient in gradients], device=norms.device)
    squares = (norms.square() * once).sum()
    for group in [] if mesh is None else mesh.get_all_groups():
        dist.all_reduce(squares, group=group)
    return float(squares)


def _holders(gradient: Tensor) -> int:
    """Ranks of a mesh that hold the same numbers of a gradient."""
    if not isinstance(gradient, DTensor):
        return 1
    mesh, placements = gradient.device_mesh, gradient.placements
    assert not any(each.is_partial() for each in placements), "a gradient is not summed yet"
    return math.prod(mesh.size(axis) for axis, at in enumerate(placements) if at.is_replicate())


def by_mesh(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Tensors that torch can compute with together, in their order."""
    groups: dict[object, list[Tensor]] = {}
    for tensor in tensors:
        mesh = tensor.device_mesh if isinstance(tensor, DTensor) else None
        groups.setdefault(mesh, []).append(tensor)
    return list(groups.values())


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


def placed(value: Tensor, like: Tensor) -> Tensor:
    """A copy of a whole tensor on the device of ``like``, of which it is this rank's part."""
    if not isinstance(like, DTensor) or value.shape != like.shape:
        return value.to(like.device, copy=True)
    local = torch.empty_like(like.detach(), dtype=value.dtype)
    part(local).copy_(DtensorShardOperation(like).shard_tensor(value))
    return local


def fill(target: Tensor, value: Tensor) -> None:
    """Write a whole tensor into one that may be divided; RuntimeError where shapes differ."""
    with torch.no_grad():
        target.copy_(placed(value, target))
