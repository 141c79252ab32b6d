"""Models divided among the ranks of a mesh, whatever its axes are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rl_contracts.errors import Refusal, RefusedError
from rl_contracts.spec.parallelism import SECTION
from rl_trainer.distributed.context_ranks import ContextRanks
from rl_trainer.distributed.mesh import Mesh
from rl_trainer.distributed.tensor_ranks import TensorRanks
from rl_trainer.distributed.world import ALONE, World
from rl_trainer.model import vision
from rl_trainer.model.parallel import parallel_plan, sharding
from rl_trainer.model.policy import Policy, hidden_states

DYNAMIC = ("dynamic", "longrope")
"""Kinds of rotary scaling that change with the length."""


def divided(policy: Policy, world: World) -> Policy:
    """The policy with its parameters divided among the ranks, as it is where they have no mesh.

    Raises:
        RefusedError: this model cannot be divided so.
    """
    mesh = world.mesh
    if mesh is None:
        assert not policy.offload_parameters, "they are divided, if only into one part"
        return filled(policy)
    run = divide(
        policy.module,
        mesh,
        model=policy.module,
        entry=hidden_states,
        offload=policy.offload_parameters,
    )
    ranks = None if mesh.tp is None else TensorRanks(mesh.tp.get_group())
    policy = dataclasses.replace(policy, run_layers=run, ranks=ranks, context=context_ranks(mesh))
    return filled(policy, world)


def filled(policy: Policy, world: World = ALONE) -> Policy:
    """The policy with its weights read, as it is where they are; a collective call.

    Raises:
        RefusedError: they cannot be read, or are not finite.
    """
    if policy.stored is None:
        return policy
    fill(policy.module, policy, world)
    return dataclasses.replace(policy, stored=None)


def fill(module: Any, policy: Policy, world: World) -> None:
    """Read what this rank holds of the weights of a policy's module, or of its layers."""
    if policy.stored is not None:
        home = torch.device("cpu") if policy.offload_parameters else policy.device
        policy.stored.fill(module, device=home, buffers=policy.device, world=world)


def context_ranks(mesh: Mesh) -> ContextRanks | None:
    """The ranks that share each row of tokens; None where each has rows of its own."""
    return None if mesh.cp is None else ContextRanks(mesh.cp.get_group())


def divide(
    module: Any, mesh: Mesh, *, model: Any, entry: Callable[..., Tensor], offload: bool
) -> Callable[..., Tensor]:
    """Divide a module's parameters, first among ``tp`` and ``ep``, then by FSDP2.

    Args:
        module: whole and equal on all ranks, or on ``meta``; it is changed.
        mesh: of all ranks.
        model: the transformers model in it, or itself.
        entry: called with the module and more; runs what has to be gathered.
        offload: what this rank holds of parameters and gradients lies in host memory.

    Returns:
        ``entry`` with the module bound, to be called instead of it.

    Raises:
        RefusedError: this model cannot be divided so.
    """
    _check_positions(model, mesh)
    layers = frozenset(model._no_split_modules or ())
    experts = parallel_plan.divide(model, mesh)
    return sharding.shard(
        module,
        mesh,
        layers=layers,
        experts=experts,
        whole=vision.towers(model),
        entry=entry,
        offload=offload,
    )


def _check_positions(model: Any, mesh: Mesh) -> None:
    """Refuse rotary scaling by the longest sequence: ranks of ``cp`` see other lengths each."""
    scaling = getattr(model.config, "rope_parameters", None) or {}
    kind = scaling.get("rope_type") if isinstance(scaling, dict) else None
    if mesh.cp is not None and kind in DYNAMIC:
        raise RefusedError(
            Refusal(
                field=f"{SECTION}.cp",
                value=str(mesh.sizes.cp),
                reason="ModelUnusable",
                message=f"The model's rotary scaling ({kind}) depends on the longest sequence, of "
                "which each process sees a part.",
                remedy="Set it to 1.",
            )
        )
