"""The pods that train and sample."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import (
    Environment,
    EnvironmentSources,
    Image,
    IntOrPercent,
    Model,
    Name,
    ObjectName,
    Opaque,
    Resources,
    rule,
    rules,
)
from rl_contracts.spec.engine import Engine
from rl_contracts.spec.parallelism import MeshSizes, Parallelism, mesh_sizes

MOST_SAMPLERS = 2000
"""Of a pool."""
NodeSelector = Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=16)]
GPU_SUFFIX = "/gpu"
"""Of the resource names of GPUs, e.g. ``nvidia.com/gpu``."""
METRICS_PORT = 8080
"""Where the pods serve their metrics."""


def gpus_of(resources: Resources) -> int:
    """GPUs that a container asks for, by resources whose names end in ``/gpu``."""
    asked = resources.requests | resources.limits
    return sum(
        int(str(amount))
        for name, amount in asked.items()
        if name.endswith(GPU_SUFFIX) and str(amount).isdecimal()
    )


class Placement(Model):
    """Where pods run, and what is changed in those that the operator makes."""

    node_selector: NodeSelector = Field(default_factory=dict)
    """Labels that a node must have for the pods to run there. Empty: any node."""
    tolerations: Annotated[list[Opaque], Field(max_length=16)] = Field(default_factory=list)
    """Taints of nodes that the pods tolerate, as in core/v1."""
    topology_spread: Annotated[list[Opaque], Field(max_length=8)] = Field(default_factory=list)
    """Topology spread constraints as in core/v1. Without a labelSelector they count the pods of the
    same pool or trainer."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods. Unset: the cluster's default."""
    service_account_name: ObjectName | None = None
    """ServiceAccount of the pods; its token is not mounted. Unset: `default`."""
    pod_template: Opaque | None = None
    """Partial pod template (metadata and spec) merged over the operator's own; lists such as
    containers are merged by name. Fields that the operator needs are refused."""


class Elastic(Model):
    """Bounds of the replicas of later attempts, which have as many as fit the cluster."""

    min_replicas: Annotated[int, Field(ge=1, le=512)]
    """Fewest replicas of an attempt; with fewer it does not start. At most trainer.replicas."""
    max_replicas: Annotated[int, Field(ge=1, le=512)]
    """Most replicas of an attempt. At least trainer.replicas."""
    rdzv_port: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """TCP port at which the first replica waits for the others; not 8080, where metrics are
    served. Unset: 29400."""
    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 0
    """Number of failures in a row that do not count against lifecycle.backoffLimit; the next one
    does."""


class Trainer(Placement):
    """The trainer's pods: how many, with which resources, and where."""

    model_config = rules(
        rule(
            "!has(self.elastic) || self.elastic.minReplicas <= self.replicas && "
            "self.replicas <= self.elastic.maxReplicas",
            "trainer.replicas must be within trainer.elastic: {self.replicas} is not from "
            "{self.elastic.minReplicas} to {self.elastic.maxReplicas}",
            field="replicas",
        ),
        rule(
            f"!has(self.elastic) || self.elastic.?rdzvPort.orValue(0) != {METRICS_PORT}",
            f"trainer.elastic.rdzvPort is {METRICS_PORT}, where metrics are served: use another "
            "port",
            field="elastic.rdzvPort",
        ),
    )
    replicas: Annotated[int, Field(ge=1, le=512)] = 1
    """Number of trainer pods. Each holds a part of the model and of each batch."""
    elastic: Elastic | None = None
    """Lets later attempts have more or fewer replicas, as many as fit. Unset: always replicas."""
    processes_per_replica: Annotated[int, Field(ge=1, le=16)] | None = None
    """Number of training processes in each pod, one for each of its GPUs. Unset: as many as
    resources ask for GPUs, and 1 without GPUs."""
    parallelism: Parallelism = Field(default_factory=Parallelism)
    image: Image | None = None
    """Image of the trainer container. Unset: the installation's trainer image."""
    resources: Resources = Field(default_factory=Resources)
    """CPU, memory and GPUs of each trainer pod."""
    env: Environment = Field(default_factory=list)
    """Environment variables of the trainer container, as in core/v1."""
    env_from: EnvironmentSources = Field(default_factory=list)
    """Secrets (`secretRef`) or ConfigMaps (`configMapRef`) whose keys all become environment
    variables. env and the operator's own variables win."""

    @property
    def gpus(self) -> int:
        """GPUs of each pod, by resources whose names end in ``/gpu``."""
        return gpus_of(self.resources)

    @property
    def processes(self) -> int:
        """Training processes of each pod, ≥ 1."""
        return self.processes_per_replica or max(1, self.gpus)

    @property
    def most_processes(self) -> int:
        """Training processes of all pods together, as many as an elastic trainer may have."""
        most = self.replicas if self.elastic is None else self.elastic.max_replicas
        return most * self.processes

    def mesh(self, replicas: int | None = None) -> MeshSizes:
        """The mesh of an attempt of so many replicas (default: ``replicas``).

        Raises:
            RefusedError: see ``mesh_sizes``.
        """
        return mesh_sizes(self.parallelism, (replicas or self.replicas) * self.processes)


class Autoscaling(Model):
    """How many sampler pods a pool has, and what changes the number."""

    model_config = rules(
        rule(
            "self.?mode.orValue('None') == 'None' || has(self.maxReplicas)",
            "autoscaling.mode Builtin needs autoscaling.maxReplicas: set it",
            field="maxReplicas",
        ),
        rule(
            "!has(self.maxReplicas) || self.?minReplicas.orValue(1) <= self.maxReplicas",
            "autoscaling.minReplicas must not exceed autoscaling.maxReplicas: "
            "{self.?minReplicas.orValue(1)} is more than {self.maxReplicas}",
            field="minReplicas",
        ),
        rule(
            "self.?mode.orValue('None') == 'Builtin' || "
            "(!has(self.maxReplicas) && !has(self.idleSecondsToZero))",
            "autoscaling.maxReplicas and idleSecondsToZero are of mode Builtin alone: set mode to "
            "Builtin or remove them",
        ),
    )
    mode: Literal["None", "Builtin"] = "None"
    """`None`: the number of pods changes only through `/scale`, by people, an HPA or KEDA.
    `Builtin`: the operator scales between minReplicas and maxReplicas by the work that waits."""
    min_replicas: Annotated[int, Field(ge=1, le=MOST_SAMPLERS)] = 1
    """Number of pods that a new pool starts with, and the fewest that mode Builtin keeps."""
    max_replicas: Annotated[int, Field(ge=1, le=MOST_SAMPLERS)] | None = None
    """Most pods. Required with mode Builtin, refused without it."""
    idle_seconds_to_zero: Annotated[int, Field(ge=60, le=604800)] | None = None
    """Seconds without work and without a sign of the trainer after which the pool has no pods. Only
    with mode Builtin. Unset: never."""
    scale_up_cooldown_seconds: Annotated[int, Field(ge=0, le=86400)] = 30
    """Fewest seconds from one change of size to the next that adds pods, in mode Builtin."""
    scale_down_cooldown_seconds: Annotated[int, Field(ge=0, le=86400)] = 300
    """Fewest seconds from one change of size to the next that removes pods, in mode Builtin."""


class Drain(Model):
    """What a sampler pod that is stopped does with the groups it works on."""

    mode: Literal["Finish", "Abort"] = "Finish"
    """`Finish`: running groups may finish for timeoutSeconds; then they go back to the queue.
    `Abort`: they go back to the queue at once."""
    timeout_seconds: Annotated[int, Field(ge=0, le=3600)] = 25
    """Seconds that running groups may take to finish under mode Finish."""

    @property
    def seconds(self) -> int:
        """For running groups to finish, ≥ 0."""
        return 0 if self.mode == "Abort" else self.timeout_seconds


class Rollout(Model):
    """How pods of a changed template replace the old ones."""

    model_config = rules(
        rule(
            "!has(self.maxUnavailable) || !(string(self.maxUnavailable) in ['0', '0%']) || "
            "(has(self.maxSurge) && !(string(self.maxSurge) in ['0', '0%']))",
            "rollout.maxUnavailable and rollout.maxSurge must not both be 0: no pod could be "
            "replaced; raise one of them",
        )
    )
    max_unavailable: IntOrPercent = "25%"
    """Number or share (`25%`) of pods that may be missing while pods are replaced, also pods that
    are replaced because they are stale or silent."""
    max_surge: IntOrPercent = 0
    """Number or share (`25%`) of pods that may exist beyond the wanted number while pods are
    replaced. 0: a new pod waits for the place of an old one."""


class Disruption(Model):
    """How many of a pool's pods node drains may take at a time."""

    pdb: bool = True
    """Whether the pool has a PodDisruptionBudget."""
    max_unavailable: Annotated[int, Field(ge=1, le=MOST_SAMPLERS)] = 1
    """Number of pods that voluntary disruptions may take at a time."""


class SamplerTemplate(Placement):
    """Pods of a pool: images, engine, resources, scaling and replacement."""

    image: Image | None = None
    """Image of the agent container. Unset: the installation's sampler image."""
    env: Environment = Field(default_factory=list)
    """Environment variables of the agent container, e.g. a proxy, as in core/v1. Your own code gets
    code.env."""
    env_from: EnvironmentSources = Field(default_factory=list)
    """Secrets (`secretRef`) or ConfigMaps (`configMapRef`) whose keys all become environment
    variables of the agent container."""
    engine: Engine = Field(default_factory=Engine)
    resources: Resources = Field(default_factory=Resources)
    """CPU, memory and GPUs of the engine container of each pod."""
    max_concurrent_groups: Annotated[int, Field(ge=1, le=4096)] = 16
    """Number of groups of rollouts that one pod works on at a time."""
    autoscaling: Autoscaling = Field(default_factory=Autoscaling)
    drain: Drain = Field(default_factory=Drain)
    rollout: Rollout = Field(default_factory=Rollout)
    disruption: Disruption = Field(default_factory=Disruption)


class PoolRef(Model):
    """A SamplerPool that several jobs share, with a model of its own."""

    name: Name
    """Name of the SamplerPool, in the job's namespace."""


class SamplerGroup(Model):
    """A group of sampler pods: a pool that belongs to the job, or a shared one."""

    model_config = rules(
        rule(
            "!has(self.poolRef) || !has(self.template)",
            "samplers[].poolRef excludes template in group {self.name}: a shared pool has its own "
            "template; remove one of them",
            field="poolRef",
        )
    )
    name: Name
    """Name of the group, unique in the job; its pool is called `<job>-<name>`."""
    pool_ref: PoolRef | None = None
    """SamplerPool to share instead of a pool of the job's own. Unset: the job gets its own."""
    declared: SamplerTemplate | None = Field(default=None, alias="template")
    """Pods of the job's own pool. Not with poolRef. Unset: the defaults of each field."""

    @property
    def template(self) -> SamplerTemplate:
        """What the group's pods look like; of a shared pool once the group is ``resolved``."""
        return self.declared if self.declared is not None else SamplerTemplate()

    def resolved(self, template: SamplerTemplate) -> SamplerGroup:
        """The group with its shared pool's own template."""
        return self.model_copy(update={"declared": template})
