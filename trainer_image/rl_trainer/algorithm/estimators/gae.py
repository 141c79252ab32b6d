"""Generalized advantage estimation (arXiv 1506.02438), equation 16, over generated tokens.

    δ_t = r_t + γ V_{t+1} - V_t        Â_t = δ_t + γ λ Â_{t+1}        R_t = Â_t + V_t

V_t is what the critic expects before token t; after the last one it is 0. r is minus the penalty of
each token, and at the last one plus the reward; what an environment gave in a turn arrives with the
turn's last token. Tokens that the policy did not generate (prompts, tools' answers) are no steps.
Advantages are normalised over all tokens of the step; R_t, not
normalised, is what the critic is trained to predict.

With ``perTurn`` t counts turns (Turn-PPO, arXiv 2512.17008): V_t is the value before the turn's
first token, r_t the sum over its tokens, and all of them get Â_t and are trained to predict R_t.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators.records import Advantage, Episode, Group, State
from rl_trainer.algorithm.estimators.reinforce_plus_plus import (
    of_each_token,
    step_rewards,
    whitened,
)


def advantages(groups: Sequence[Group], section: Estimator, state: State) -> list[list[Advantage]]:
    """Advantages of every token, normalised over the step; float64 ``[T]`` for each rollout."""
    return whitened([[_raw(episode, section) for episode in group] for group in groups])


def returns(episode: Episode, section: Estimator) -> Tensor:
    """R_t, the critic's training targets, float64 ``[T]``; not normalised."""
    assert episode.values is not None
    steps = episode.steps(section)
    return _raw(episode, section) + of_each_token(_before(episode.values, steps), steps)


def _raw(episode: Episode, section: Estimator) -> Tensor:
    assert episode.values is not None, "the critic has not been asked"
    steps = episode.steps(section)
    rewards, values = step_rewards(episode, steps), [*_before(episode.values, steps), 0.0]
    estimates, following = [0.0] * len(rewards), 0.0
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + section.discount * values[t + 1] - values[t]
        following = delta + section.discount * section.smoothing * following
        estimates[t] = following
    return of_each_token(estimates, steps)


def _before(values: Tensor, steps: Sequence[int]) -> list[float]:
    """The value before each step: that of its first token."""
    return [float(part[0]) for part in torch.split(values, list(steps))]
