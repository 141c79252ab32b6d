"""Generalized advantage estimation (arXiv 1506.02438), equation 16, over generated tokens.

    δ_t = r_t + γ V_{t+1} - V_t        Â_t = δ_t + γ λ Â_{t+1}        R_t = Â_t + V_t

V_t is what the critic expects before token t; after the last one it is 0. r is minus the penalty of
each token, and at the last one plus the reward. Tokens that the policy did not generate (prompts,
tools' answers) are no steps. Advantages are normalised over all tokens of the step; R_t, not
normalised, is what the critic is trained to predict.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_contracts.spec.estimator import Estimator
from rl_trainer.estimators.records import Advantage, Episode, Group, State
from rl_trainer.estimators.reinforce_plus_plus import token_rewards, whitened


def advantages(groups: Sequence[Group], section: Estimator, state: State) -> list[list[Advantage]]:
    """Advantages of every token, normalised."""
    return whitened([[_raw(one, section) for one in group] for group in groups])


def returns(episode: Episode, section: Estimator) -> Tensor:
    """What the critic should have expected before each token, float64 ``[T]``."""
    assert episode.values is not None
    return _raw(episode, section) + episode.values


def _raw(episode: Episode, section: Estimator) -> Tensor:
    assert episode.values is not None, "the critic has not been asked"
    rewards, values = token_rewards(episode).tolist(), [*episode.values.tolist(), 0.0]
    found, following = [0.0] * len(rewards), 0.0
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + section.discount * values[t + 1] - values[t]
        following = delta + section.discount * section.smoothing * following
        found[t] = following
    return torch.tensor(found, dtype=torch.float64)
