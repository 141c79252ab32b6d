"""The value model of generalized advantage estimation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rl_contracts.spec.base import Model
from rl_contracts.spec.data import ModelFolder


class Critic(Model):
    """The value model of estimator GAE: a model with a head that predicts the reward to come."""

    model: ModelFolder | None = None
    """Model that the critic starts from; it must have the policy's tokens. Unset: the policy's own
    model."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 1e-5
    """Learning rate of the critic. Warm-up, schedule, betas, epsilon and weight decay are those of
    training.optimizer."""
    max_gradient_norm: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Gradients of the critic with a larger global norm are scaled down to it."""
    value_clip: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Largest change of a predicted value in a step that lowers the critic's loss. Unset: any."""
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Number of first steps that train the critic alone, while the policy waits."""
    prompts_per_update: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Prompts in one update of the critic. Unset: one update from all prompts of the step."""
    passes_per_step: Annotated[int, Field(ge=1, le=100)] = 1
    """Number of times that a step trains the critic on its rollouts."""
    max_tokens_per_microbatch: Annotated[int, Field(ge=16, le=16_777_216)] | None = None
    """Most tokens that the critic computes at a time; it changes no result. Unset: the policy's,
    training.maxTokensPerMicrobatch."""
