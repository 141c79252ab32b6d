"""How old what is trained may be."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.algorithm.correction import Correction
from rl_contracts.spec.base import Model, rule, rules


class OffPolicy(Model):
    """How old trained tokens may be, and how often."""

    model_config = rules(
        rule(
            "self.maxTrainings == 1 || self.retrainInterval <= self.maxStaleness",
            "maxTrainings needs maxStaleness of at least retrainInterval",
        ),
        rule(
            "self.maxTrainings > 1 || self.retrainInterval == 1",
            "retrainInterval needs maxTrainings of at least 2",
        ),
        rule("self.maxDroppedShare > 0.0", "maxDroppedShare must be greater than 0"),
    )
    max_staleness: Annotated[int, Field(ge=0, le=64)] = 1
    """In training steps, of the oldest token; 0 samples and trains in turns."""
    max_trainings: Annotated[int, Field(ge=1, le=64)] = 1
    """Steps that may train one rollout."""
    retrain_interval: Annotated[int, Field(ge=1, le=64)] = 1
    """Steps from one training of a rollout to the next."""
    max_dropped_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of groups lost over ten steps; above it RolloutsFresh is False."""
    correction: Correction = Field(default_factory=Correction)
