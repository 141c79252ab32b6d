"""What the operator says of an object. Computed from observation alone, never read back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model

Phase = Literal[
    "Pending", "Starting", "Running", "Recovering", "Succeeded", "Failed", "Stalled", "Terminating"
]
Text = Annotated[str, Field(max_length=1024)]
ShortText = Annotated[str, Field(max_length=256)]


class Condition(Model):
    """A condition as in meta/v1."""

    type: ShortText
    status: Literal["True", "False", "Unknown"]
    reason: ShortText
    message: Text = ""
    last_transition_time: ShortText
    observed_generation: int


Conditions = Annotated[
    list[Condition],
    Field(
        max_length=24,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]


class TrainerStatus(Model):
    """The trainer of the current attempt."""

    job: ShortText = ""
    ready: int = 0
    desired: int = 0
    summary: ShortText = ""
    restarts: int = 0
    """Trainer starts of this run after the first."""


class SamplersStatus(Model):
    """All pools of the job together."""

    desired: int = 0
    ready: int = 0
    serving: int = 0
    """Ready and at an allowed policy version."""
    summary: ShortText = ""
    restarts: int = 0
    """Sampler pods of this run that died or had to be replaced."""


class ProgressStatus(Model):
    """How far the training is; at most ten seconds old."""

    step: int = 0
    steps: int = 0
    reward: float | None = None
    """Mean reward of the last step's rollouts."""
    accuracy: float | None = None
    """Mean reward of the last evaluation."""
    phase: ShortText = ""
    """The trainer's own words for what it does or waits for."""
    backlog: int = 0
    """Tasks that wait for a sampler or are being sampled."""
    tokens_per_second: float = 0.0
    """Generated tokens per second over all samplers."""
    trainer_wait_share: float = 0.0
    """Share of the trainer's time spent waiting for rollouts, in [0, 1]."""
    seconds_left: int | None = None
    last_progress_time: ShortText | None = None


class WeightsStatus(Model):
    """Which policy is published and which ones are served."""

    version: int = 0
    min_serving_version: int = 0
    lag: int = 0
    """Training steps between the trainer and the oldest policy that is served."""
    uri: Text = ""
    digest: ShortText = ""


class FailureStatus(Model):
    """The last failed attempt in the pod's own words."""

    attempt: int
    reason: ShortText
    message: Text
    pod: ShortText = ""
    exit_code: int | None = None
    time: ShortText


class RLJobStatus(Model):
    """Status of an RLJob."""

    observed_generation: int = -1
    """-1 until the operator has seen the object, else GitOps tools take it for finished."""
    phase: Phase = "Pending"
    attempt: int = 0
    """Ordinal of the current trainer attempt; 0 before the first."""
    failures: int = 0
    """Failed attempts that count against lifecycle.backoffLimit."""
    run_id: ShortText = ""
    conditions: Conditions = Field(default_factory=list)
    trainer: TrainerStatus = Field(default_factory=TrainerStatus)
    samplers: SamplersStatus = Field(default_factory=SamplersStatus)
    progress: ProgressStatus = Field(default_factory=ProgressStatus)
    weights: WeightsStatus = Field(default_factory=WeightsStatus)
    last_failure: FailureStatus | None = None
    next_retry_time: ShortText | None = None
    start_time: ShortText | None = None
    completion_time: ShortText | None = None
    final_model: Text = ""


class SamplerPoolStatus(Model):
    """Status of a SamplerPool."""

    observed_generation: int = -1
    replicas: int = 0
    selector: Text = ""
    ready: int = 0
    serving: int = 0
    updated: int = 0
    version: int = 0
    """Oldest policy version that a ready pod serves; 0 when none does."""
    lag: int = 0
    conditions: Conditions = Field(default_factory=list)
