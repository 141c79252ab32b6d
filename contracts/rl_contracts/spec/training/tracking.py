"""Where a run's metrics are shown besides its own ``metrics.jsonl``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model, ObjectName, rule, rules

WANDB_KEY = "WANDB_API_KEY"
MLFLOW_KEYS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
"""Keys of the Secret, named as the trackers' own variables."""


class Traces(Model):
    """Traces of rollouts in OpenTelemetry's form, from the claim to the publication."""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^\s@]+$", max_length=512)]
    """URL of a receiver of OTLP over HTTP with protobuf, such as
    `http://collector:4318/v1/traces`."""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of rollouts that are traced, above 0 and up to 1. Which ones depends on their ids
    alone."""


class Tracking(Model):
    """Trackers that show the run's metrics besides its own metrics.jsonl.

    None of them can stop or slow a run.
    """

    model_config = rules(
        rule(
            "!has(self.wandb) || self.wandb != 'Online' || has(self.secretName)",
            "training.tracking.wandb is Online, which needs an API key: set secretName to a Secret "
            f"with the key {WANDB_KEY}",
            field="secretName",
        ),
    )
    tensor_board: bool = False
    """Whether TensorBoard event files are written to the bucket."""
    wandb: Literal["Offline", "Online"] | None = None
    """Weights & Biases. `Offline`: files in the bucket that `wandb sync` uploads. `Online`: sent
    at once, with the key WANDB_API_KEY of secretName. Unset: not used."""
    mlflow: Annotated[str, Field(pattern=r"^https?://[^\s@]+$", max_length=256)] | None = None
    """URL of an MLflow tracking server. Unset: not used."""
    project: Annotated[str, Field(max_length=128)] | None = None
    """Project (Weights & Biases) or experiment (MLflow) of the run. Unset: the job's namespace."""
    entity: Annotated[str, Field(pattern=r"^[\w-]+$", max_length=64)] | None = None
    """Weights & Biases team or user that the run belongs to. Unset: the key's default."""
    run_name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Name of the run in Weights & Biases and MLflow. Unset: the job's name with the run's id."""
    tags: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=16)
    ] = Field(default_factory=list)
    """Tags of the run in Weights & Biases."""
    secret_name: ObjectName | None = None
    """Secret in the job's namespace with WANDB_API_KEY, or with MLFLOW_TRACKING_TOKEN or _USERNAME
    and _PASSWORD. Unset: no credentials."""
    allow_plain_http: bool = False
    """Whether MLflow's credentials may be sent without TLS, to a Service or a private address."""
    traces: Traces | None = None
    """OpenTelemetry traces, one for each rollout, sent by samplers and trainer. Unset: none."""
    samples: Annotated[int, Field(ge=0, le=64)] = 0
    """Number of rollouts of each step whose text is sent to the trackers; 0: none."""
