"""Listwise weights of MaxEnt-GRPO (liv-daliberti/maxent-grpo), for ``loss.kind: MaxEnt``.

    q = softmax(R / T_q) (1 - K ε_q) + ε_q           w_i ∝ exp((log q_i + β ref_i) / (τ + β))

ref_i is the reference's log-probability of the rollout, of a token on average unless
``lengthNormalizeReference`` is false; β the KL coefficient (0 without a reference); τ the
temperature. w sums to 1 over a group of K; the advantage is A_i = K w_i ≥ 0, so that 1 is a
uniform weight. The first code keeps τ + β above 1; here they are as the formula says, and τ > 0.
"""

from __future__ import annotations

import math

from rl_contracts.spec.algorithm.estimator import Estimator
from rl_trainer.algorithm.estimators.records import Group, State


def advantages(group: Group, section: Estimator, state: State) -> list[float]:
    """K times each member's weight: all 1 when rewards and reference are equal."""
    options, size = section.weighting, len(group)
    targets = _softmax([episode.total / options.q_temperature for episode in group])
    epsilon = options.q_epsilon
    assert epsilon * size < 1, "the API server asks for it"
    logits = []
    for target, episode in zip(targets, group, strict=True):
        mixed = target * (1 - size * epsilon) + epsilon
        pulled = state.kl_coefficient * episode.reference if state.kl_coefficient else 0.0
        logits.append((math.log(mixed) + pulled) / (state.tau + state.kl_coefficient))
    return [size * weight for weight in _softmax(logits)]


def _softmax(values: list[float]) -> list[float]:
    largest = max(values)
    powers = [math.exp(value - largest) for value in values]
    total = math.fsum(powers)
    return [power / total for power in powers]
