"""Length, batches, precision, durability and evaluation of the training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from rl_contracts.spec.base import NUMBER, Model, S3Uri, rule, rules
from rl_contracts.spec.training.lora import LoRA
from rl_contracts.spec.training.tracking import Tracking

HubRepo = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$", max_length=96),
    WithJsonSchema({"type": "string"}),
]
"""``org/name``; its form is checked by the operator alone."""


class Optimizer(Model):
    """AdamW with a linear warm-up."""

    model_config = rules(
        rule(
            "!has(self.minimumRatio) || self.schedule != 'Constant'",
            "optimizer.minimumRatio is for schedules Linear and Cosine",
        )
    )
    kind: Literal["AdamW", "AdamW8bit"] = "AdamW"
    """AdamW8bit: moments of 8 bits."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 1e-6
    schedule: Literal["Constant", "Linear", "Cosine"] = "Constant"
    """What follows the warm-up."""
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    minimum_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of learningRate at the last step; unset: 0."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    beta1: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.999
    epsilon: Annotated[float, Field(gt=0, le=1), NUMBER] = 1e-8
    max_gradient_norm: Annotated[float, Field(gt=0, le=1e6), NUMBER] = 1.0


class Resume(Model):
    """What was trained before."""

    model_config = rules(
        rule(
            "has(self.uri) == (self.mode == 'From')",
            "resume.uri goes with mode From alone",
        )
    )
    mode: Literal["Auto", "Never", "From"] = "Auto"
    """``Never`` refuses a run with steps; ``From`` begins with uri."""
    uri: S3Uri | None = None
    """A checkpoint's folder."""


class Checkpoint(Model):
    """Training state in the bucket."""

    every_steps: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Bounds what is replayed."""
    keep_last: Annotated[int, Field(ge=1, le=1000)] = 2
    export_every_steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Unset: only the final model."""
    hub_repo: HubRepo | None = None
    """Where the final model goes on data.hub, too."""
    resume: Resume = Field(default_factory=Resume)


class Evaluation(Model):
    """Sampling of the validation data by one policy version."""

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
    """Every prompt is sampled at each."""
    samples_per_prompt: Annotated[int, Field(ge=1, le=1024)] = 1
    timeout_seconds: Annotated[int, Field(ge=10, le=86400)] = 1800


class Training(Model):
    """Length, batches and precision."""

    model_config = rules(
        rule(
            "!has(self.evaluation.everySteps) || !has(self.steps) || "
            "self.evaluation.everySteps <= self.steps",
            "evaluation.everySteps must not exceed steps",
        ),
        rule(
            "!has(self.steps) || self.optimizer.warmupSteps <= self.steps",
            "optimizer.warmupSteps must not exceed steps",
        ),
        rule(
            "!has(self.promptsPerUpdate) || self.promptsPerStep % self.promptsPerUpdate == 0",
            "promptsPerUpdate must divide promptsPerStep",
        ),
    )
    steps: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    epochs: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Passes over the training records."""
    prompts_per_step: Annotated[int, Field(ge=1, le=65536)] = 64
    prompts_per_update: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Unset: one update from all prompts of the step."""
    passes_per_step: Annotated[int, Field(ge=1, le=100)] = 1
    """Times that a step trains its rollouts."""
    optimizer: Optimizer = Field(default_factory=Optimizer)
    precision: Literal["BF16", "FP32"] = "BF16"
    """Masters are FP32."""
    lora: LoRA | None = None
    """Unset: all weights."""
    gradient_checkpointing: bool = False
    """Runs layers again to keep less."""
    offload_activations: bool = False
    """To host memory."""
    offload_optimizer: bool = False
    """Moments lie in host memory."""
    offload_parameters: bool = False
    """So do weights, gradients and moments."""
    max_tokens_per_microbatch: Annotated[int, Field(ge=16, le=16_777_216)] = 32768
    max_sequences_per_microbatch: Annotated[int, Field(ge=1, le=65536)] | None = None
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    tracking: Tracking = Field(default_factory=Tracking)
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 42

    @property
    def total_steps(self) -> int:
        """Steps; with ``epochs`` they are known only to a trainer that has read the data."""
        assert self.steps is not None, "epochs become steps once the data are read"
        return self.steps

    def for_records(self, records: int) -> Training:
        """The same training with its steps known.

        Args:
            records: of all training sources together, ≥ 1; 0 where nothing is trained.
        """
        if self.epochs is None:
            return self if self.steps is not None else self.model_copy(update={"steps": 0})
        steps = -(-self.epochs * records // self.prompts_per_step)
        return self.model_copy(update={"steps": steps})
