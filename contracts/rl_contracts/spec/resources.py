"""The two custom resources."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from rl_contracts.spec.agent.agents import Agent
from rl_contracts.spec.agent.sandbox import CODE, Sandbox
from rl_contracts.spec.agent.user_code import Code
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.base import RULES, RUN_ID, Model, Name, rule, rules
from rl_contracts.spec.data import HARBOR, Data, ModelSource
from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.spec.pool_status import SamplerPoolStatus
from rl_contracts.spec.reward import MATH, Reward
from rl_contracts.spec.rollouts import Rollouts
from rl_contracts.spec.rules.agents import OF_AGENTS
from rl_contracts.spec.rules.engines import OF_ENGINES, OF_SHARED_ENGINE
from rl_contracts.spec.rules.jobs import (
    OF_JOB,
    OF_LORA,
    OF_QUEUE,
    OF_SECTIONS,
    ONLY_RAISED,
    fixed,
    only_raised,
)
from rl_contracts.spec.rules.placement import OF_PLACEMENT
from rl_contracts.spec.rules.pools import OF_POOL
from rl_contracts.spec.scheduling import Scheduling
from rl_contracts.spec.status import RLJobStatus
from rl_contracts.spec.storage import Storage, WeightSync
from rl_contracts.spec.training.training import Training
from rl_contracts.spec.workers import MOST_SAMPLERS, SamplerGroup, SamplerTemplate, Trainer

GROUP = "rl-operator.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

OURS: Final = "rl-operator.io/operator"

FIXED_ONCE_STARTED = (
    "model",
    "data",
    "agent",
    "reward",
    "code",
    "algorithm",
    "rollouts",
    "training",
    "storage",
    "weightSync",
    "placement",
)
FIXED_UNLESS_SUSPENDED = ("trainer", "scheduling")

NetworkPolicyKind = Literal["RunOnly", "None"]

RunId = Annotated[str, Field(pattern=rf"^({RUN_ID})?$", max_length=63)]
SamplerGroups = Annotated[
    list[SamplerGroup],
    Field(
        max_length=8,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]


MANAGERS = Literal["rl-operator.io/operator", "kueue.x-k8s.io/multikueue"]


NEVER_TAKEN_BACK = rule(
    "self || !oldSelf",
    "spec.stop cannot be taken back: make a new job with this one's run as runId, as "
    "`kubectl rl retry` does",
)


class RLJobSpec(Model):
    """One RL post-training run: what is learned, from which model and data, and with which pods."""

    model_config = rules(
        *OF_JOB,
        *OF_AGENTS,
        *OF_SECTIONS,
        *OF_LORA,
        *OF_QUEUE,
        *OF_PLACEMENT,
        *OF_ENGINES,
    )
    suspend: bool = False
    """true stops all pods after a checkpoint; false lets the run go on from there."""
    stop: Annotated[bool, Field(json_schema_extra={RULES: [NEVER_TAKEN_BACK]})] = False
    """true ends the run for good before its last step: all pods stop after a checkpoint, and the
    job gets the phase Stopped. Cannot be taken back."""
    managed_by: MANAGERS = OURS
    """Controller responsible for this job: this operator, or Kueue's MultiKueue. Cannot change."""
    run_id: RunId = ""
    """ID of a deleted job's run to resume (its status.runId). Cannot change. Empty: a new run."""
    network_policy: NetworkPolicyKind = "RunOnly"
    """`RunOnly`: a NetworkPolicy lets the run's pods reach each other and others only their
    metrics. `None`: no NetworkPolicy is created; refused for a trainer of several processes."""
    model: ModelSource
    data: Data
    agent: Agent = Field(default_factory=Agent)
    reward: Reward = Field(default_factory=Reward)
    code: Code = Field(default_factory=Code)
    sandbox: Sandbox | None = None
    algorithm: Algorithm = Field(default_factory=Algorithm)
    rollouts: Rollouts = Field(default_factory=Rollouts)
    training: Training
    trainer: Trainer = Field(default_factory=Trainer)
    placement: Literal["Separate", "Colocated"] = "Separate"
    """Where engines run. `Separate`: in pods of their own, and they sample while the trainer
    trains. `Colocated`: in the trainer's pod; both use the same GPUs, by turns."""
    samplers: SamplerGroups = Field(default_factory=list)
    """Groups of sampler pods, at least one. Empty only under algorithm.objective SFT and
    Offline."""
    weight_sync: WeightSync = Field(default_factory=WeightSync)
    storage: Storage = Field(default_factory=Storage)
    lifecycle: Lifecycle = Field(default_factory=Lifecycle)
    scheduling: Scheduling = Field(default_factory=Scheduling)

    @model_validator(mode="after")
    def _is_rewarded(self) -> Self:
        """As the CEL rule says; code that has parsed a manifest may rely on it."""
        if not self.algorithm.unsampled and not (self.samplers and self.reward.scorers):
            raise ValueError("spec.samplers and spec.reward.scorers must not be empty")
        return self

    @property
    def wants_no_pods(self) -> bool:
        """Whether the user has suspended the job, or stopped it for good."""
        return self.suspend or self.stop

    @property
    def colocated(self) -> bool:
        """Whether the engine shares the trainer's pod and its devices."""
        return self.placement == "Colocated"

    @property
    def pooled(self) -> list[SamplerGroup]:
        """Groups of samplers with pods of their own."""
        return [] if self.colocated else self.samplers

    def compares(self, scorer: str) -> bool:
        """Whether a record that names this scorer, or none (empty), needs a reference answer."""
        return self.algorithm.supervised or self.reward.compares(scorer)

    @property
    def runs_programs(self) -> bool:
        """Whether samplers run programs that the policy writes."""
        scorers = [scorer.kind for scorer in self.reward.scorers if not scorer.is_own]
        return CODE in (self.agent.kind, *scorers) or "Python" in self.agent.built_in_tools

    @property
    def runs_user_code(self) -> bool:
        """Whether samplers run the user's own scorers, tools or agent."""
        scorers = any(scorer.entry_point is not None for scorer in self.reward.scorers)
        return scorers or bool(self.agent.tools) or self.agent.entry_point is not None

    @property
    def needs_code_container(self) -> bool:
        """Whether sampler pods have the container ``code``.

        It runs the user's code and programs, commands of MCP servers, and the scorer Math, which
        records may name too.
        """
        kinds = [scorer.kind for scorer in self.reward.scorers if not scorer.is_own]
        return (
            self.runs_user_code
            or (self.agent.program is not None and self.agent.program.in_sidecar)
            or any(server.command for server in self.agent.mcp_servers)
            or MATH in kinds
            or any(source.columns.scorer is not None for source in self.data.by_field.values())
        )

    @property
    def has_harbor_tasks(self) -> bool:
        """Whether any data are Harbor tasks, which programs solve and tests judge."""
        return any(source.format == HARBOR for source in self.data.by_field.values())

    @property
    def program_limits(self) -> Sandbox:
        """Limits of such a program."""
        return self.sandbox or Sandbox()


class SamplerPoolSpec(Model):
    """A set of equal sampler pods: the pool of one job, or a pool that several jobs share."""

    model_config = rules(
        *OF_POOL,
        *OF_SHARED_ENGINE,
    )
    suspend: bool = False
    """true removes all pods, whatever replicas says; false brings them back."""
    managed_by: MANAGERS = OURS
    """Controller responsible for a shared pool: this operator, or Kueue's MultiKueue. Cannot
    change."""
    network_policy: NetworkPolicyKind = "RunOnly"
    """For a pool with maxRuns above 1. `RunOnly`: a NetworkPolicy lets its pods reach each other
    and others only their metrics. `None`: no NetworkPolicy is created."""
    replicas: Annotated[int, Field(ge=0, le=MOST_SAMPLERS)] = 1
    """Wanted number of pods. Change it through `/scale`, e.g. `kubectl scale`, an HPA or KEDA."""
    job: Name | None = None
    """RLJob of this namespace that owns the pool; the operator sets it. Unset: a shared pool."""
    model: ModelSource | None = None
    """Model of a shared pool; the jobs that share it must have the same. Unset: the pool of a
    job."""
    max_runs: Annotated[int, Field(ge=1, le=8)] = 1
    """Number of runs that a shared pool serves at the same time. Above 1 all of them must train
    adapters (training.lora)."""
    admitted: Annotated[int, Field(ge=0, le=MOST_SAMPLERS)] | None = None
    """Most pods that the job's queue has admitted; the operator sets it. Unset: there is no
    queue."""
    template: SamplerTemplate = Field(default_factory=SamplerTemplate)

    @property
    def shared(self) -> bool:
        """Whether the pool stands on its own and serves the runs of several jobs."""
        return self.job is None

    @property
    def size(self) -> int:
        """Pods that there ought to be while the job is at work."""
        if self.suspend:
            return 0
        return self.replicas if self.admitted is None else min(self.replicas, self.admitted)


def _compared(sections: Collection[str]) -> dict[str, dict[str, bool]]:
    """The fields by which a section is compared, and which may be unset; none: as a whole."""
    models = {field.alias: field.annotation for field in RLJobSpec.model_fields.values()}
    return {
        section: {
            field.alias or name: field.default is None
            for name, field in getattr(models[section], "model_fields", {}).items()
            if section in ONLY_RAISED and name not in ONLY_RAISED[section]
        }
        for section in sections
    }


class RLJob(Model):
    """A reinforcement-learning run: its specification and its state."""

    model_config = rules(
        rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')",
            "metadata.name must be a letter followed by lower-case letters, digits and '-', at "
            "most 40 characters: pods are named after it",
        ),
        rule(
            "self.spec.samplers.all(group, size(group.name) + size(self.metadata.name) <= 62)",
            "metadata.name and a spec.samplers[].name may have at most 62 characters together: "
            "the pool has both",
        ),
        fixed(
            _compared(FIXED_ONCE_STARTED),
            "",
            "cannot change once the trainer has been started: make a new job",
        ),
        *(
            only_raised(section, field)
            for section, fields in ONLY_RAISED.items()
            for field in fields
        ),
        fixed(
            _compared(FIXED_UNLESS_SUSPENDED),
            "oldSelf.spec.suspend || ",
            "cannot change while the trainer runs: set spec.suspend first",
        ),
    )
    spec: RLJobSpec
    status: RLJobStatus = Field(default_factory=RLJobStatus)


class SamplerPool(Model):
    """A pool of sampler pods, of one job or shared by several: its specification and its state."""

    spec: SamplerPoolSpec
    status: SamplerPoolStatus = Field(default_factory=SamplerPoolStatus)
