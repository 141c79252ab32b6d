from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rl_contracts.spec.learning import Loss
from rl_trainer.losses import LOSSES, ppo_clip
from rl_trainer.losses.records import LossInputs

SECTION = Loss(clip_low=0.2, clip_high=0.3)


def inputs(ratios: list[float], advantages: list[float]) -> LossInputs:
    sampler = torch.full((len(ratios),), -1.0, dtype=torch.float64)
    trained = sampler + torch.tensor(ratios, dtype=torch.float64).log()
    return LossInputs(
        logprobs=trained.requires_grad_(),
        sampler_logprobs=sampler,
        advantages=torch.tensor(advantages, dtype=torch.float64),
    )


def test_every_loss_of_the_manifest_is_there() -> None:
    kinds = Loss.model_json_schema()["properties"]["kind"]
    assert set(LOSSES) == set(kinds.get("enum", [kinds.get("const")]))


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, False),
        (1.2, 2.0, -2.4, -2.4, False),
        (1.5, 2.0, -2.6, 0.0, True),  # above 1 + 0.3: held at 1.3 x 2
        (0.5, 2.0, -1.0, -1.0, False),  # too unlikely, and wanted: keeps its gradient
        (0.5, -2.0, 1.6, 0.0, True),  # below 1 - 0.2: held at 0.8 x -2
        (0.9, -2.0, 1.8, 1.8, False),
        (1.5, -2.0, 3.0, 3.0, False),  # too likely, and unwanted: keeps its gradient
        (1.5, 0.0, 0.0, 0.0, False),
    ],
)
def test_one_token_by_hand(
    *, ratio: float, advantage: float, loss: float, gradient: float, clipped: bool
) -> None:
    given = inputs([ratio], [advantage])
    outputs = ppo_clip.loss(given, SECTION)
    outputs.losses.sum().backward()
    assert given.logprobs.grad is not None
    assert outputs.losses.item() == pytest.approx(loss)
    assert given.logprobs.grad.item() == pytest.approx(gradient)
    assert bool(outputs.clipped) is clipped


def test_gradient_agrees_with_finite_differences() -> None:
    given = inputs([0.5, 0.75, 0.9, 1.1, 1.29, 1.6], [1.0, -1.0, 0.5, -0.5, 2.0, -2.0])

    def total(logprobs: Tensor) -> Tensor:
        changed = LossInputs(
            logprobs=logprobs,
            sampler_logprobs=given.sampler_logprobs,
            advantages=given.advantages,
        )
        return ppo_clip.loss(changed, SECTION).losses

    assert torch.autograd.gradcheck(total, (given.logprobs,))


def test_policies_with_nothing_in_common_give_no_infinity() -> None:
    given = LossInputs(
        logprobs=torch.tensor([0.0, -500.0]),
        sampler_logprobs=torch.tensor([-500.0, 0.0]),
        advantages=torch.tensor([-1.0, -1.0]),
    )
    losses = ppo_clip.loss(given, SECTION).losses
    assert losses[0].item() == pytest.approx(math.exp(ppo_clip.MAX_LOG_RATIO), rel=1e-6)
    assert losses[1].item() == pytest.approx(0.8)
