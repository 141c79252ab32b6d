"""AdamW (arXiv 1711.05101) with a linear warm-up to a constant rate."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_contracts.spec.learning import Optimizer as OptimizerSection

BETAS = (0.9, 0.999)
EPSILON = 1e-8

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
        betas=BETAS,
        eps=EPSILON,
    )


def learning_rate(section: OptimizerSection, *, step: int) -> float:
    """Rate of the update that makes step ``step`` (≥ 1)."""
    if step >= section.warmup_steps:
        return section.learning_rate
    return section.learning_rate * step / section.warmup_steps


def state(
    optimizer: torch.optim.AdamW, parameters: dict[str, torch.nn.Parameter]
) -> State:  # fmt: skip
    """Moments and step counts, on the CPU, named ``<kind>/<parameter>``; empty before a step."""
    return {
        f"{kind}/{name}": value.detach().cpu().clone()
        for name, parameter in parameters.items()
        for kind, value in optimizer.state.get(parameter, {}).items()
    }


def restore(
    optimizer: torch.optim.AdamW, parameters: dict[str, torch.nn.Parameter], saved: State
) -> None:
    """Put back what ``state`` returned; KeyError for an unknown parameter."""
    for key, value in saved.items():
        kind, name = key.split("/", 1)
        parameter = parameters[name]
        # Adam's step count stays on the CPU; moments live with their parameter.
        placed = value.clone() if kind == "step" else value.to(parameter.device, copy=True)
        optimizer.state[parameter][kind] = placed
