"""The pods that train and sample, and how long they are given."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import EnvironmentVariable, Model, Name, Resources

Image = Annotated[str, Field(min_length=1, max_length=512)]
Environment = Annotated[list[EnvironmentVariable], Field(max_length=32)]
NodeSelector = Annotated[dict[str, str], Field(max_length=16)]


class Trainer(Model):
    """The trainer pod."""

    image: Image | None = None
    """Unset: the image that the operator was installed with."""
    resources: Resources = Field(default_factory=Resources)
    env: Environment = Field(default_factory=list)
    node_selector: NodeSelector = Field(default_factory=dict)


class Engine(Model):
    """The inference engine of a sampler pod."""

    kind: Literal["SGLang"] = "SGLang"
    image: Image | None = None
    """Unset: the image that the operator was installed with."""
    args: Annotated[list[Annotated[str, Field(max_length=512)]], Field(max_length=64)] = Field(
        default_factory=list
    )
    """Arguments for the engine's server after those that the operator sets."""
    env: Environment = Field(default_factory=list)
    startup_seconds: Annotated[int, Field(ge=10, le=86400)] = 1800


class Autoscaling(Model):
    """How many sampler pods there are."""

    mode: Literal["None"] = "None"
    """``None``: only ``kubectl scale`` and other writers of ``/scale`` change the number."""
    min_replicas: Annotated[int, Field(ge=1, le=2000)] = 1
    """A new pool starts with these."""


class SamplerTemplate(Model):
    """What a pool's pods look like."""

    image: Image | None = None
    """The agent beside the engine; unset: the image that the operator was installed with."""
    engine: Engine = Field(default_factory=Engine)
    resources: Resources = Field(default_factory=Resources)
    """Of the engine container."""
    node_selector: NodeSelector = Field(default_factory=dict)
    max_concurrent_groups: Annotated[int, Field(ge=1, le=4096)] = 16
    """Tasks that one pod works on at a time."""
    autoscaling: Autoscaling = Field(default_factory=Autoscaling)


class SamplerGroup(Model):
    """A pool that belongs to the job."""

    name: Name
    template: SamplerTemplate = Field(default_factory=SamplerTemplate)


class Lifecycle(Model):
    """Retries, deadlines and what remains."""

    backoff_limit: Annotated[int, Field(ge=0, le=100)] = 3
    """Failed trainer attempts after which the job fails."""
    restart_backoff_seconds: Annotated[int, Field(ge=1, le=3600)] = 10
    """Before the second attempt; doubles with each further one up to ten minutes."""
    pending_deadline_seconds: Annotated[int, Field(ge=10, le=604800)] = 1800
    """Longest time an attempt's trainer pod may take to run."""
    progress_deadline_seconds: Annotated[int, Field(ge=60, le=604800)] = 1800
    """Longest time without a new step or evaluation before the attempt counts as failed."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Unset: a finished job is kept."""
    data_policy: Literal["Retain", "Delete"] = "Retain"
    """Whether deleting the job deletes its documents and objects."""
