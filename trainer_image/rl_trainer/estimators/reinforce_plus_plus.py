"""REINFORCE++ (arXiv 2501.03262): discounted returns, normalised over the whole step.

    G_t = Σ_{k ≥ t} γ^(k - t) r_k        A_t = (G_t - mean(G)) / sqrt(var(G) + 1e-8)

r is minus the penalty of each token (KL in the reward), and at the last one plus the reward. Mean
and sample variance are over all tokens of the step. It needs no group: ``groupSize: 1`` will do.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_contracts.spec.estimator import Estimator
from rl_trainer.estimators.records import Advantage, Episode, Group, State

EPSILON = 1e-8


def advantages(groups: Sequence[Group], section: Estimator, state: State) -> list[list[Advantage]]:
    """Advantages of every token; one number for a rollout whose tokens are all alike."""
    returns = [[_returns(one, section.discount) for one in group] for group in groups]
    return whitened(returns)


def token_rewards(episode: Episode) -> Tensor:
    """What arrives with each generated token, float64 ``[T]``."""
    rewards = torch.zeros(episode.num_tokens, dtype=torch.float64)
    if episode.penalties is not None:
        rewards -= episode.penalties
    rewards[-1] += episode.reward
    return rewards


def whitened(values: list[list[Tensor]]) -> list[list[Advantage]]:
    """Values of tokens with mean 0 and variance 1 over the step; of a single token 0."""
    everything = torch.cat([one for group in values for one in group])
    variance = everything.var() if len(everything) > 1 else torch.ones((), dtype=torch.float64)
    mean, scale = everything.mean(), torch.rsqrt(variance + EPSILON)
    return [[_compact((one - mean) * scale) for one in group] for group in values]


def _returns(episode: Episode, gamma: float) -> Tensor:
    rewards = token_rewards(episode).tolist()
    found, following = [0.0] * len(rewards), 0.0
    for t in reversed(range(len(rewards))):
        following = rewards[t] + gamma * following
        found[t] = following
    return torch.tensor(found, dtype=torch.float64)


def _compact(values: Tensor) -> Advantage:
    return float(values[0]) if bool((values == values[0]).all()) else values
