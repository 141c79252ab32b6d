"""The pods that train and sample."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import (
    OPAQUE,
    TEXT,
    EnvironmentVariable,
    IntOrPercent,
    Model,
    Name,
    Opaque,
    Quantity,
    Resources,
    rule,
    rules,
)

Image = Annotated[str, Field(pattern=r"^\S+$", max_length=512), TEXT]
Environment = Annotated[list[Annotated[EnvironmentVariable, OPAQUE]], Field(max_length=32)]
"""As in core/v1; the operator alone looks into them, for a CRD has room for 60 KB."""
EnvironmentSources = Annotated[list[Opaque], Field(max_length=16)]
MOST_SAMPLERS = 2000
"""Of a pool."""
NodeSelector = Annotated[dict[str, str], Field(max_length=16)]


class Placement(Model):
    """Where pods run, and what is laid over those that the operator makes."""

    node_selector: NodeSelector = Field(default_factory=dict)
    tolerations: Annotated[list[Opaque], Field(max_length=16)] = Field(default_factory=list)
    topology_spread: Annotated[list[Opaque], Field(max_length=8)] = Field(default_factory=list)
    """Constraints; without a labelSelector they count the pool's or job's pods."""
    priority_class_name: Annotated[str, Field(max_length=253), TEXT] | None = None
    service_account_name: str | None = None
    """Its token is not mounted."""
    pod_template: Opaque | None = None
    """Partial, merged by name over ours; what the operator needs is refused."""


class Elastic(Model):
    """Bounds of later attempts' replicas: the most that fit."""

    min_replicas: Annotated[int, Field(ge=1)]
    max_replicas: Annotated[int, Field(ge=1, le=512)]
    rdzv_backend: Literal["c10d"] = "c10d"
    rdzv_port: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """Where the first replica waits for the others; unset: 29400."""
    rdzv_conf: Opaque | None = None
    """Refused."""
    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 0
    """So many failures in a row do not count against lifecycle.backoffLimit; the next one does."""


class Trainer(Placement):
    """The trainer's pods."""

    model_config = rules(
        rule(
            "!has(self.elastic) || self.elastic.minReplicas <= self.replicas && "
            "self.replicas <= self.elastic.maxReplicas",
            "trainer.replicas must be within trainer.elastic",
        ),
    )
    replicas: Annotated[int, Field(ge=1, le=512)] = 1
    """Each holds a part of the model and of each batch."""
    elastic: Elastic | None = None
    """Later attempts have the most that fit."""
    processes_per_replica: Annotated[int, Field(ge=1, le=16)] = 1
    """One for each of its GPUs."""
    image: Image | None = None
    """Unset: the one of the installation."""
    resources: Resources = Field(default_factory=Resources)
    env: Environment = Field(default_factory=list)
    env_from: EnvironmentSources = Field(default_factory=list)
    """All keys of a Secret (``secretRef``) or ConfigMap; env and ours win."""


class Engine(Model):
    """The inference engine of a sampler pod."""

    kind: Literal["SGLang"] = "SGLang"
    image: Image | None = None
    """Unset: the one of the installation."""
    args: Annotated[list[Annotated[str, Field(max_length=512)]], Field(max_length=64)] = Field(
        default_factory=list
    )
    """For its server, after those that the operator sets."""
    env: Environment = Field(default_factory=list)
    env_from: EnvironmentSources = Field(default_factory=list)
    nodes_per_replica: Annotated[int, Field(ge=1)] = 1
    """More are refused for now."""
    startup_seconds: Annotated[int, Field(ge=10, le=86400)] = 1800


class Autoscaling(Model):
    """How many sampler pods there are."""

    model_config = rules(
        rule(
            "self.mode == 'None' || has(self.maxReplicas)",
            "autoscaling.mode Builtin needs autoscaling.maxReplicas",
        ),
        rule(
            "!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "autoscaling.minReplicas must not exceed autoscaling.maxReplicas",
        ),
        rule(
            "self.mode == 'Builtin' || (!has(self.maxReplicas) && !has(self.idleSecondsToZero))",
            "autoscaling.maxReplicas and idleSecondsToZero are of mode Builtin alone",
        ),
    )
    mode: Literal["None", "Builtin"] = "None"
    """``None``: writers of ``/scale`` change the number: people, an HPA, KEDA."""
    min_replicas: Annotated[int, Field(ge=1, le=MOST_SAMPLERS)] = 1
    """A new pool starts with these."""
    max_replicas: Annotated[int, Field(ge=1, le=MOST_SAMPLERS)] | None = None
    idle_seconds_to_zero: Annotated[int, Field(ge=60, le=604800)] | None = None
    """No pods when the trainer was silent for so long and nothing waits; unset: never."""
    scale_up_cooldown_seconds: Annotated[int, Field(ge=0, le=86400)] = 30
    scale_down_cooldown_seconds: Annotated[int, Field(ge=0, le=86400)] = 300


class Drain(Model):
    """How a sampler pod ends."""

    mode: Literal["Finish", "Abort", "Pause"] = "Finish"
    """Abort hands everything back at once; Pause is refused."""
    timeout_seconds: Annotated[int, Field(ge=0, le=3600)] = 25
    """Running groups may finish for so long; then they are handed back."""

    @property
    def seconds(self) -> int:
        """For running groups to finish, ≥ 0."""
        return 0 if self.mode == "Abort" else self.timeout_seconds


class Rollout(Model):
    """How pods of a changed template take the old ones' places."""

    model_config = rules(
        rule(
            "!(string(self.maxUnavailable) in ['0', '0%']) || "
            "!(string(self.maxSurge) in ['0', '0%'])",
            "rollout.maxUnavailable and rollout.maxSurge must not both be 0",
        )
    )
    max_unavailable: IntOrPercent = "25%"
    """Also of pods that are replaced because they stay stale or silent."""
    max_surge: IntOrPercent = 0
    """Accelerators are scarce: a new pod waits for an old one's place."""
    partition: Quantity | None = None
    """Refused for now."""


class Disruption(Model):
    """What node drains may take."""

    pdb: bool = True
    """False: no PodDisruptionBudget is made."""
    max_unavailable: Annotated[int, Field(ge=1, le=MOST_SAMPLERS)] = 1
    """Pods of the pool at a time."""


class SamplerTemplate(Placement):
    """What a pool's pods look like."""

    image: Image | None = None
    """The agent's; unset: the one of the installation."""
    env: Environment = Field(default_factory=list)
    """The agent's: of tools and scorers."""
    env_from: EnvironmentSources = Field(default_factory=list)
    engine: Engine = Field(default_factory=Engine)
    resources: Resources = Field(default_factory=Resources)
    """Of the engine container."""
    max_concurrent_groups: Annotated[int, Field(ge=1, le=4096)] = 16
    """Tasks that one pod works on at a time."""
    autoscaling: Autoscaling = Field(default_factory=Autoscaling)
    drain: Drain = Field(default_factory=Drain)
    rollout: Rollout = Field(default_factory=Rollout)
    disruption: Disruption = Field(default_factory=Disruption)


class PoolRef(Model):
    """A SamplerPool without a job of its own."""

    name: Annotated[Name, TEXT]


class SamplerGroup(Model):
    """A pool that belongs to the job, or one that it shares."""

    model_config = rules(
        rule(
            "!has(self.poolRef) || !has(self.template)",
            "poolRef excludes template",
        )
    )
    name: Name
    pool_ref: PoolRef | None = None
    """Shares that SamplerPool."""
    declared: SamplerTemplate | None = Field(default=None, alias="template")

    @property
    def template(self) -> SamplerTemplate:
        """What the group's pods look like; of a shared pool once the group is ``resolved``."""
        return self.declared if self.declared is not None else SamplerTemplate()

    def resolved(self, template: SamplerTemplate) -> SamplerGroup:
        """The group with its shared pool's own template."""
        return self.model_copy(update={"declared": template})
