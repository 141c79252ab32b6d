"""How the policy is improved."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, rule, rules


class Estimator(Model):
    """Turns a group's rewards into advantages."""

    kind: Literal["GRPO"] = "GRPO"


class Loss(Model):
    """The policy loss, averaged over the step's tokens."""

    kind: Literal["PPOClip"] = "PPOClip"
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    clip_high: Annotated[float, Field(gt=0, le=10)] = 0.2


class OffPolicy(Model):
    """How old trained tokens may be."""

    max_staleness: Annotated[int, Field(ge=0, le=64)] = 1
    """In training steps, of the oldest token; 0 samples and trains in turns."""


class Algorithm(Model):
    """The learning algorithm."""

    model_config = rules(
        rule(
            "self.estimator.kind != 'GRPO' || self.groupSize >= 2",
            "GRPO compares the members of a group: groupSize must be at least 2",
        )
    )
    group_size: Annotated[int, Field(ge=1, le=1024)] = 8
    """Rollouts for each prompt."""
    estimator: Estimator = Field(default_factory=Estimator)
    loss: Loss = Field(default_factory=Loss)
    off_policy: OffPolicy = Field(default_factory=OffPolicy)


class Optimizer(Model):
    """AdamW with a linear warm-up to a constant rate."""

    learning_rate: Annotated[float, Field(gt=0, le=1)] = 1e-6
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    max_gradient_norm: Annotated[float, Field(gt=0, le=1e6)] = 1.0


class Checkpoint(Model):
    """Durable training state in the bucket."""

    every_steps: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Bounds what is replayed after a crash."""
    keep_last: Annotated[int, Field(ge=1, le=1000)] = 2


class Evaluation(Model):
    """Sampling the validation data through the pools, by exactly one policy version each time."""

    model_config = rules(
        rule(
            "self.temperatures.all(one, one >= 0.01)",
            "evaluation.temperatures must each be at least 0.01",
        )
    )
    every_steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Unset: not during training."""
    before_training: bool = True
    after_training: bool = True
    temperatures: Annotated[
        list[Annotated[float, Field(ge=0.01, le=2.0)]], Field(min_length=1, max_length=4)
    ] = Field(default=[1.0])
    """Every validation prompt is sampled once at each."""
    timeout_seconds: Annotated[int, Field(ge=10, le=86400)] = 1800


class Training(Model):
    """Length, batches, precision and durability of the training."""

    model_config = rules(
        rule(
            "!has(self.evaluation.everySteps) || self.evaluation.everySteps <= self.steps",
            "evaluation.everySteps must not exceed steps",
        ),
        rule(
            "self.optimizer.warmupSteps <= self.steps",
            "optimizer.warmupSteps must not exceed steps",
        ),
    )
    steps: Annotated[int, Field(ge=1, le=10_000_000)]
    prompts_per_step: Annotated[int, Field(ge=1, le=65536)] = 64
    optimizer: Optimizer = Field(default_factory=Optimizer)
    precision: Literal["BF16", "FP32"] = "BF16"
    """Of the forward and backward pass and of published weights; masters are FP32."""
    max_tokens_per_microbatch: Annotated[int, Field(ge=16, le=16_777_216)] = 32768
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 42
