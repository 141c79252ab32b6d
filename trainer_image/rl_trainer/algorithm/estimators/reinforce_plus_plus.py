"""REINFORCE++ (arXiv 2501.03262): discounted returns, normalised over the whole step.

    G_t = Σ_{k ≥ t} γ^(k - t) r_k        A_t = (G_t - mean(G)) / sqrt(var(G) + 1e-8)

r is minus the penalty of each token (KL in the reward), and at the last one plus the reward. What
an environment gave in a turn arrives with that turn's last token instead. Mean and sample variance
are over all tokens of the step. It needs no group: ``groupSize: 1`` will do.

With ``perTurn`` t counts turns: r_t is the sum over a turn's tokens, which all get its A_t, and γ
discounts turns, however long they are (the decision process of Turn-PPO, arXiv 2512.17008).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators.records import Advantage, Episode, Group, State

EPSILON = 1e-8


def advantages(groups: Sequence[Group], section: Estimator, state: State) -> list[list[Advantage]]:
    """Advantages of every token; one number for a rollout whose tokens are all alike."""
    returns = [[_returns(episode, section) for episode in group] for group in groups]
    return whitened(returns)


def token_rewards(episode: Episode) -> Tensor:
    """What arrives with each generated token, float64 ``[T]``; sums to ``episode.total``."""
    rewards = torch.zeros(episode.num_tokens, dtype=torch.float64)
    if episode.penalties is not None:
        rewards -= episode.penalties
    for last, reward in zip(accumulate(episode.turns), episode.turn_rewards, strict=False):
        rewards[last - 1] += reward
    rewards[-1] += episode.reward - math.fsum(episode.turn_rewards)
    return rewards


def step_rewards(episode: Episode, steps: Sequence[int]) -> list[float]:
    """What arrives with each step, given the tokens of each."""
    return [math.fsum(part.tolist()) for part in torch.split(token_rewards(episode), list(steps))]


def of_each_token(values: Sequence[float], steps: Sequence[int]) -> Tensor:
    """Give all tokens of a step its value, float64 ``[T]``."""
    step_values = torch.tensor(values, dtype=torch.float64)
    return step_values.repeat_interleave(torch.tensor(steps))


def whitened(values: list[list[Tensor]]) -> list[list[Advantage]]:
    """Values of tokens with mean 0 and variance 1 over the step; of a single token 0."""
    everything = torch.cat([tokens for group in values for tokens in group])
    variance = everything.var() if len(everything) > 1 else torch.ones((), dtype=torch.float64)
    mean, scale = everything.mean(), torch.rsqrt(variance + EPSILON)
    return [[_compact((tokens - mean) * scale) for tokens in group] for group in values]


def _returns(episode: Episode, section: Estimator) -> Tensor:
    steps = episode.steps(section)
    rewards = step_rewards(episode, steps)
    returns, following = [0.0] * len(rewards), 0.0
    for t in reversed(range(len(rewards))):
        following = rewards[t] + section.discount * following
        returns[t] = following
    return of_each_token(returns, steps)


def _compact(values: Tensor) -> Advantage:
    return float(values[0]) if bool((values == values[0]).all()) else values
