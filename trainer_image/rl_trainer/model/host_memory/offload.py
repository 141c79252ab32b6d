"""Moments that lie in host memory but for those of the one parameter that is being updated."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_trainer.model.parallel import sharding

MOMENTS = frozenset({"exp_avg", "exp_avg_sq", "state1", "state2", "absmax1", "absmax2"})
"""Of AdamW and AdamW8bit; step counts and code books are small and stay where they are."""


def step(optimizer: torch.optim.Optimizer) -> None:
    """Make an update, parameter by parameter; its moments are in host memory before and after.

    An update of AdamW uses one parameter at a time, so the results are exactly those of
    ``optimizer.step()``.
    """
    groups = optimizer.param_groups
    try:
        for group in groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    optimizer.param_groups = [{**group, "params": [parameter]}]
                    _update(optimizer, parameter)
    finally:
        optimizer.param_groups = groups


@torch.no_grad()
def _update(optimizer: torch.optim.Optimizer, parameter: Any) -> None:
    device = sharding.part(parameter).device
    held = _moments(optimizer, parameter)
    hosts = [moment.data for moment in held]
    for moment, host in zip(held, hosts, strict=True):
        moment.data = host.to(device, copy=True)
    optimizer.step()
    for moment, host in zip(held, hosts, strict=True):
        host.copy_(moment)
        moment.data = host
    if not held:  # the first update made them
        for moment in _moments(optimizer, parameter):
            to_host(moment)


@torch.no_grad()
def to_host(moment: Tensor) -> None:
    """Move what this rank holds of a moment to host memory, pinned where a GPU will read it."""
    local = sharding.part(moment)
    host = torch.empty_like(local, device="cpu", pin_memory=local.is_cuda)
    host.copy_(local)
    local.data = host


def _moments(optimizer: torch.optim.Optimizer, parameter: Any) -> list[Tensor]:
    """What this rank holds of a parameter's moments; none before the first update."""
    held = optimizer.state.get(parameter, {})
    return [sharding.part(moment) for name, moment in held.items() if name in MOMENTS]
