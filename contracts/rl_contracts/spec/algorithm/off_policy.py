"""How old what is trained may be."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.algorithm.correction import Correction
from rl_contracts.spec.base import Model, rule, rules


class OffPolicy(Model):
    """How old trained tokens may be, how often a rollout is trained, and how age is corrected."""

    model_config = rules(
        rule(
            "self.maxTrainings == 1 || self.retrainInterval <= self.maxStaleness",
            "offPolicy.maxTrainings needs maxStaleness of at least retrainInterval: "
            "{self.maxStaleness} is less than {self.retrainInterval}",
            field="maxStaleness",
        ),
        rule(
            "self.maxTrainings > 1 || self.retrainInterval == 1",
            "offPolicy.retrainInterval needs maxTrainings of at least 2: raise maxTrainings or "
            "remove retrainInterval",
            field="retrainInterval",
        ),
        rule(
            "self.maxDroppedShare > 0.0",
            "offPolicy.maxDroppedShare must be greater than 0",
            field="maxDroppedShare",
        ),
    )
    max_staleness: Annotated[int, Field(ge=0, le=64)] = 1
    """Largest age of a trained token, in training steps since the policy version that sampled it.
    0: sampling and training take turns."""
    max_trainings: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of steps that may train the same rollout. 1: every rollout is trained once."""
    retrain_interval: Annotated[int, Field(ge=1, le=64)] = 1
    """Steps from one training of a rollout to its next; at most maxStaleness. Above 1 it needs
    maxTrainings above 1."""
    max_dropped_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of groups that may be lost as too old over ten steps; above it the condition
    RolloutsFresh is False."""
    correction: Correction = Field(default_factory=Correction)
