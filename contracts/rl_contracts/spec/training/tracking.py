"""Where a run's metrics are shown besides its own ``metrics.jsonl``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model

WANDB_KEY = "WANDB_API_KEY"
MLFLOW_KEYS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
"""Keys of the Secret, named as the trackers' own variables."""


class Tracking(Model):
    """Trackers; none can stop or slow a run."""

    tensor_board: bool = False
    wandb: Literal["Offline", "Online"] | None = None
    mlflow: Annotated[str, Field(pattern=r"^https?://[^\s@]+$", max_length=256)] | None = None
    project: str | None = None
    """Unset: namespace."""
    secret_name: str | None = None
    samples: Annotated[int, Field(ge=0, le=64)] = 0
    """Rollouts shown of a step."""
