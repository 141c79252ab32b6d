from __future__ import annotations

import pytest
import torch

from rl_contracts.spec.training.training import Optimizer
from rl_trainer.model import optimizer


@pytest.mark.parametrize(
    ("warmup", "step", "rate"), [(0, 1, 1.0), (4, 1, 0.25), (4, 3, 0.75), (4, 4, 1.0), (4, 9, 1.0)]
)
def test_learning_rate(warmup: int, step: int, rate: float) -> None:
    section = Optimizer(learning_rate=0.5, warmup_steps=warmup)
    assert optimizer.learning_rate(section, step=step, steps=100) == pytest.approx(0.5 * rate)


@pytest.mark.parametrize(
    ("schedule", "low", "step", "rate"),
    [
        ("Linear", None, 2, 1.0),
        ("Linear", None, 6, 0.5),
        ("Linear", None, 10, 0.0),
        ("Linear", 0.2, 6, 0.6),
        ("Cosine", None, 2, 1.0),
        ("Cosine", None, 6, 0.5),
        ("Cosine", None, 4, 0.8535534),
        ("Cosine", 0.1, 10, 0.1),
        ("Cosine", None, 1, 0.5),
    ],
)
def test_the_learning_rate_follows_its_schedule_after_warmup(
    schedule: str, low: float | None, step: int, rate: float
) -> None:
    section = Optimizer.model_validate(
        {"learningRate": 0.5, "warmupSteps": 2, "schedule": schedule, "minimumRatio": low}
    )
    actual = optimizer.learning_rate(section, step=step, steps=10)
    assert actual == pytest.approx(0.5 * rate, abs=1e-8)


def test_vectors_do_not_decay() -> None:
    parameters = {
        "matrix": torch.nn.Parameter(torch.ones(2, 2)),
        "norm": torch.nn.Parameter(torch.ones(2)),
    }
    made = optimizer.build(parameters, Optimizer(learning_rate=0.1, weight_decay=0.5))
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    made.step()
    assert torch.allclose(parameters["matrix"], torch.full((2, 2), 0.95))
    assert torch.equal(parameters["norm"], torch.ones(2))
