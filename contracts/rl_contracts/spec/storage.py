"""Where shared state lies, and how policies reach the samplers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import NUMBER, Model, Quantity


class Storage(Model):
    """Where shared state and weights live."""

    secret_name: Annotated[str, Field(min_length=1, max_length=253)] = "rl-operator-stores"
    """Secret of the namespace with the MongoDB URI and the S3 endpoint, bucket and keys."""


class Delta(Model):
    """What changed since the version before, instead of all weights."""

    anchor_every: Annotated[int, Field(ge=1, le=1000)] = 10
    """Every so many versions all weights are published, too. 1: nothing else."""
    max_fraction: Annotated[float, Field(gt=0, le=1), NUMBER] = 0.3
    """Share of all weights; no larger delta is published."""


class Transport(Model):
    """The way from trainer to samplers."""

    kind: Literal["S3", "NCCL"] = "S3"
    """Through the bucket; NCCL is refused for now."""
    delta: Delta = Field(default_factory=Delta)
    relay: bool = False
    """Samplers also take versions from pods of their pool."""


Pause = Literal["Retract", "InPlace", "Abort"]


class WeightSync(Model):
    """How policies reach the samplers."""

    max_unavailable: Quantity | None = None
    """Refused for now."""
    every_steps: Annotated[int, Field(ge=1, le=1000)] = 1
    """A version is published after every so many training steps, and after the last."""
    pause: Pause = "Retract"
    """Running requests: recomputed under new weights; kept as they are; dropped, asked again."""
    timeout_seconds: Annotated[int, Field(ge=5, le=86400)] = 600
    """Longest time a sampler may take to stage and load one version."""
    on_timeout: Literal["Recreate", "Exclude", "Fail"] = "Recreate"
    """Of one that stays behind: a new pod, none, or the job fails."""
    keep_last: Annotated[int, Field(ge=2, le=10000)] = 8
    """Published versions kept in the bucket, with those that their deltas start from."""
    transport: Transport = Field(default_factory=Transport)
