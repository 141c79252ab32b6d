"""How old what is trained may be."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.algorithm.correction import Correction
from rl_contracts.spec.base import Model, rule, rules

MAX_WAIT_SECONDS = 60
"""Of ``onStale: Wait`` where nothing is set."""


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
        rule(
            "self.onStale == 'Drop' || self.maxStaleness > 0",
            "offPolicy.onStale {self.onStale} has no effect with maxStaleness 0, where each step "
            "waits for all of its episodes: raise maxStaleness or remove onStale",
            field="onStale",
        ),
        rule(
            "!has(self.maxWaitSeconds) || self.onStale == 'Wait'",
            "offPolicy.maxWaitSeconds goes with onStale Wait, and onStale is {self.onStale}: "
            "remove maxWaitSeconds",
            field="maxWaitSeconds",
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
    on_stale: Literal["Drop", "Withhold", "Wait"] = "Drop"
    """What becomes of an episode that would be older than maxStaleness. `Drop`: its group is lost.
    `Withhold`: it is not trained, but its reward still counts in its group's advantages. `Wait`:
    the next step waits for it up to maxWaitSeconds; after that its group is lost."""
    max_wait_seconds: Annotated[int, Field(ge=1, le=3600)] | None = None
    """Longest time in seconds that one step waits for open episodes under onStale Wait. Unset:
    60."""
    correction: Correction = Field(default_factory=Correction)

    @property
    def withholds(self) -> bool:
        """Whether a member that is too old is left out of its group's training."""
        return self.on_stale == "Withhold"

    @property
    def pace_seconds(self) -> float:
        """Longest wait of a step for open episodes; 0: it waits for none."""
        if self.on_stale != "Wait":
            return 0.0
        return float(self.max_wait_seconds or MAX_WAIT_SECONDS)
