"""The value model of generalized advantage estimation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.base import NUMBER, Model
from rl_contracts.spec.data import ModelFolder


class Critic(Model):
    """Predicts the reward to come, by a model with a new head."""

    model: ModelFolder | None = None
    """Of the policy's tokens. Unset: the policy's own model."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 1e-5
    max_gradient_norm: Annotated[float, Field(gt=0, le=1e6), NUMBER] = 1.0
    value_clip: Annotated[float, Field(gt=0, le=1000), NUMBER] | None = None
    """Largest useful change of a value in a step; unset: any."""
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Steps that train the critic alone."""
    prompts_per_update: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Unset: one update from all prompts of the step."""
    passes_per_step: Annotated[int, Field(ge=1, le=100)] = 1
    max_tokens_per_microbatch: Annotated[int, Field(ge=16, le=16_777_216)] | None = None
    """Unset: the policy's."""
