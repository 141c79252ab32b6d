"""Weights, gradients and log-probabilities of learners, to compare them."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_trainer.algorithm.samples import Sample
from rl_trainer.model.learner import Learner


def weights(learner: Learner) -> dict[str, Tensor]:
    return {name: one.detach().clone() for name, one in learner.parameters.items()}


def gradients(learner: Learner) -> dict[str, Tensor]:
    found = {}
    for name, one in learner.parameters.items():
        assert one.grad is not None
        found[name] = one.grad.clone()
    return found


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def score(learner: Learner, one: Sample) -> Tensor:
    """Log-probability of each token, 0 at the first."""
    learner.policy.module.eval()
    with torch.no_grad():
        logits = learner.policy.module(input_ids=one.tokens[None]).logits[0]
    learner.policy.module.train()
    chosen = logits[:-1].log_softmax(-1).gather(-1, one.tokens[1:, None])[:, 0]
    return torch.cat([torch.zeros(1), chosen])
