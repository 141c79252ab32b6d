"""Weights, gradients and log-probabilities of learners, to compare them."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_trainer.algorithm.samples import Sample
from rl_trainer.model.learner import Learner


def weights(learner: Learner) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in learner.parameters.items()}


def gradients(learner: Learner) -> dict[str, Tensor]:
    gradients = {}
    for name, parameter in learner.parameters.items():
        assert parameter.grad is not None
        gradients[name] = parameter.grad.clone()
    return gradients


def same(tensors: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensors[name], other[name]) for name in tensors)


def score(learner: Learner, sample: Sample) -> Tensor:
    """Log-probability of each token, 0 at the first."""
    learner.policy.module.eval()
    with torch.no_grad():
        logits = learner.policy.module(input_ids=sample.tokens[None]).logits[0]
    learner.policy.module.train()
    chosen = logits[:-1].log_softmax(-1).gather(-1, sample.tokens[1:, None])[:, 0]
    return torch.cat([torch.zeros(1), chosen])
