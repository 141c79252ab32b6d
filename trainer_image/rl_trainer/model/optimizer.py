"""AdamW (arXiv 1711.05101) with a linear warm-up to a rate that stays or falls.

``AdamW8bit`` is bitsandbytes': both moments are quantized to 8 bits in blocks of 256 numbers, each
with its own scale (arXiv 2110.02861); those of tensors below 4096 numbers stay float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rl_contracts.spec.training.training import Optimizer as OptimizerSection
from rl_contracts.spec.training.training import Training
from rl_trainer.model.host_memory import offload
from rl_trainer.model.parallel import pieces, sharding
from rl_trainer.model.parallel.pieces import StoredTensor

State = dict[str, Tensor]
KINDS = frozenset({"step", "exp_avg", "exp_avg_sq"})
"""What AdamW keeps of a parameter."""
KINDS_8BIT = frozenset({"step", "state1", "state2", "qmap1", "qmap2", "absmax1", "absmax2"})
"""What AdamW8bit keeps: moments, their code books, the scales of their blocks."""


def build(
    parameters: dict[str, torch.nn.Parameter], section: OptimizerSection
) -> torch.optim.Optimizer:
    """Make the optimizer; weight decay leaves vectors (norms, biases) alone.

    Groups are split by mesh: torch updates all parameters of a group in one operation.
    """
    matrices = [parameter for parameter in parameters.values() if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters.values() if parameter.ndim < 2]
    settings: dict[str, Any] = {
        "params": [
            {"params": members, "weight_decay": decay}
            for group, decay in ((matrices, section.weight_decay), (vectors, 0.0))
            for members in sharding.by_mesh(group)
        ],
        "lr": section.learning_rate,
        "betas": (section.beta1, section.beta2),
        "eps": section.epsilon,
    }
    if section.kind == "AdamW8bit":
        import bitsandbytes  # takes seconds, and is asked for by few

        eight_bit: torch.optim.Optimizer = bitsandbytes.optim.AdamW8bit(**settings)
        return eight_bit
    # Fused: no copy of any parameter's size is made on the way.
    return torch.optim.AdamW(**settings, fused=True)


def learning_rate(section: OptimizerSection, *, step: int, steps: int) -> float:
    """Rate of the updates that make step ``step`` (≥ 1) of ``steps``.

    It grows linearly over ``warmupSteps``; then it is constant, or falls to ``minimumRatio`` times
    itself at the last step, along a line or half a cosine (SGDR, arXiv 1608.03983, equation 5).
    """
    if step < section.warmup_steps:
        return section.learning_rate * step / section.warmup_steps
    if section.schedule == "Constant":
        return section.learning_rate
    done = (step - section.warmup_steps) / max(1, steps - section.warmup_steps)
    left = 1 - done if section.schedule == "Linear" else (1 + math.cos(math.pi * done)) / 2
    low = section.minimum_ratio or 0.0
    return section.learning_rate * (low + (1 - low) * left)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use ``rate`` from the next update on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def step(optimizer: torch.optim.Optimizer, training: Training) -> None:
    """Make an update from the parameters' gradients."""
    if training.offload_optimizer:
        offload.step(optimizer)
    else:
        optimizer.step()


def state(optimizer: torch.optim.Optimizer, parameters: dict[str, torch.nn.Parameter]) -> State:
    """Moments and step counts, named ``<kind>/<parameter>``; empty before a step.

    They are the optimizer's own, no copies.
    """
    return {
        f"{kind}/{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for name, parameter in parameters.items()
        for kind, value in optimizer.state.get(parameter, {}).items()
    }


def restore(
    optimizer: torch.optim.Optimizer,
    parameters: dict[str, torch.nn.Parameter],
    saved: Mapping[str, StoredTensor],
    training: Training,
) -> None:
    """Put back what ``state`` returned; KeyError for an unknown parameter or another kind."""
    plain = isinstance(optimizer, torch.optim.AdamW)
    known = KINDS if plain else KINDS_8BIT
    placed: dict[tuple[str, str], Tensor] = {}
    for key, value in saved.items():
        kind, name = key.split("/", 1)
        if kind not in known:
            raise KeyError(f"{kind}: the moments are of another training.optimizer.kind")
        placed[kind, name] = _empty(value, parameters[name])
        if training.offload_optimizer and kind in offload.MOMENTS:
            offload.to_host(placed[kind, name])
    pieces.fill(zip(placed.values(), saved.values(), strict=True))
    for (kind, name), moment in placed.items():
        counted = not plain and kind == "step"
        optimizer.state[parameters[name]][kind] = int(moment) if counted else moment


def _empty(value: StoredTensor, parameter: torch.nn.Parameter) -> Tensor:
    """What the optimizer keeps beside a parameter, divided as it is where their shapes agree."""
    if value.shape == tuple(parameter.shape):
        return torch.empty_like(parameter.detach(), dtype=value.dtype)
    return torch.empty(value.shape, dtype=value.dtype, device=parameter.device)
