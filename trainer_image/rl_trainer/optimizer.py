"""AdamW (arXiv 1711.05101) with a linear warm-up to a rate that stays or falls."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rl_contracts.spec.training import Optimizer as OptimizerSection
from rl_trainer import sharding
from rl_trainer.world import ALONE, World

State = dict[str, Tensor]


def build(
    parameters: dict[str, torch.nn.Parameter], section: OptimizerSection
) -> torch.optim.AdamW:
    """Make the optimizer; weight decay leaves vectors (norms, biases) alone."""
    matrices = [one for one in parameters.values() if one.ndim >= 2]
    vectors = [one for one in parameters.values() if one.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": section.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=section.learning_rate,
        betas=(section.beta1, section.beta2),
        eps=section.epsilon,
        fused=True,  # no copy of any parameter's size is made on the way
    )


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


def set_rate(optimizer: torch.optim.AdamW, rate: float) -> None:
    """Use ``rate`` from the next update on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def state(
    optimizer: torch.optim.AdamW,
    parameters: dict[str, torch.nn.Parameter],
    *,
    world: World = ALONE,
) -> State:
    """Moments and step counts, on the CPU, named ``<kind>/<parameter>``; empty before a step.

    Every rank must ask; rank 0 has them.
    """
    named = {
        f"{kind}/{name}": value
        for name, parameter in parameters.items()
        for kind, value in optimizer.state.get(parameter, {}).items()
    }
    return sharding.copies(named, world)


def restore(
    optimizer: torch.optim.AdamW, parameters: dict[str, torch.nn.Parameter], saved: State
) -> None:
    """Put back what ``state`` returned; KeyError for an unknown parameter."""
    for key, value in saved.items():
        kind, name = key.split("/", 1)
        parameter = parameters[name]
        optimizer.state[parameter][kind] = sharding.placed(value, parameter)
