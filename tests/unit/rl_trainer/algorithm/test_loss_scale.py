from __future__ import annotations

import pytest
import torch

from rl_trainer.algorithm import loss_scale
from rl_trainer.algorithm.kl.controller import Controls


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_the_scale_moves_as_torchs_own_does() -> None:
    """GradScaler on a processor, with an interval that a test can wait for."""
    scaler = torch.amp.GradScaler("cpu", growth_interval=loss_scale.INTERVAL)
    controls, weight = Controls(), torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    generator = torch.Generator().manual_seed(0)
    for update in range(3 * loss_scale.INTERVAL):
        finite = update >= 300 or bool(torch.rand((), generator=generator) > 0.02)
        weight.grad = torch.full((2,), 1.0 if finite else float("inf"))
        scaler.scale(torch.ones(()))
        scaler.step(optimizer)
        scaler.update()
        controls = loss_scale.after(controls, finite=finite)
        assert controls.loss_scale == scaler.get_scale()
    assert controls.loss_scale != Controls().loss_scale


def test_the_scale_stays_above_its_least() -> None:
    controls = Controls(loss_scale=2.0)
    for _ in range(3):
        controls = loss_scale.after(controls, finite=False)
    assert controls.loss_scale == loss_scale.LEAST
