"""The two custom resources."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from rl_contracts.spec.agent.agents import Agent
from rl_contracts.spec.agent.sandbox import CODE, Sandbox
from rl_contracts.spec.agent.user_code import Code
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.base import Model, Name, Opaque, rule, rules
from rl_contracts.spec.data import Data, ModelSource
from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.spec.reward import Reward
from rl_contracts.spec.rollouts import Rollouts
from rl_contracts.spec.scheduling import Scheduling
from rl_contracts.spec.status import RLJobStatus, SamplerPoolStatus
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
)
FIXED_UNLESS_SUSPENDED = ("trainer", "scheduling")

NetworkPolicyKind = Literal["RunOnly", "None"]

RunId = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=63)]
SamplerGroups = Annotated[
    list[SamplerGroup],
    Field(
        max_length=8,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]


class RLJobSpec(Model):
    """One RL post-training run."""

    model_config = rules(
        rule(
            "self.algorithm.objective == 'Evaluation' || (has(self.data.train) && "
            "has(self.training.steps) != has(self.training.epochs))",
            "training is as long as either steps or epochs say: set one, and data.train",
        ),
        rule(
            "size(self.data.validation) > 0 || !has(self.training.evaluation.everySteps)",
            "training.evaluation.everySteps needs data.validation",
        ),
        rule(
            "self.weightSync.everySteps <= self.algorithm.offPolicy.maxStaleness + 1",
            "weightSync.everySteps must be at most algorithm.offPolicy.maxStaleness + 1",
        ),
        rule(
            "!has(self.rollouts.completion.minimum) || "
            "self.rollouts.completion.minimum <= self.algorithm.groupSize",
            "rollouts.completion.minimum must not exceed algorithm.groupSize",
        ),
        rule(
            "!has(self.rollouts.completion.minimum) || "
            "self.rollouts.completion.minimum >= self.algorithm.estimator.?k.orValue(2) || "
            "self.algorithm.estimator.kind in ['REINFORCEPlusPlus', 'GAE', 'ReMax']",
            "this algorithm.estimator.kind compares members: "
            "rollouts.completion.minimum must be at least 2, of PassAtK estimator.k",
        ),
        rule(
            "[size(self.samplers), size(self.reward.scorers)].all(n, "
            "(n == 0) == (self.algorithm.objective == 'SFT'))",
            "spec.samplers and spec.reward.scorers go with algorithm.objective RL alone",
        ),
        rule(
            "self.runId == oldSelf.runId && self.managedBy == oldSelf.managedBy",
            "spec.managedBy and spec.runId cannot change",
        ),
    )
    suspend: bool = False
    """Stops all pods; once false, the run goes on."""
    managed_by: Literal["rl-operator.io/operator", "kueue.x-k8s.io/multikueue"] = OURS
    """Another controller's jobs are left alone."""
    run_id: RunId = ""
    """A run to go on with; its job is gone."""
    network_policy: NetworkPolicyKind = "RunOnly"
    """Its pods reach each other, others their metrics alone; None: no NetworkPolicy is made."""
    model: ModelSource
    data: Data
    agent: Agent = Field(default_factory=Agent)
    reward: Reward = Field(default_factory=Reward)
    code: Code = Field(default_factory=Code)
    sandbox: Sandbox | None = None
    """Of kind Code, agent or scorer; unset: its defaults."""
    algorithm: Algorithm = Field(default_factory=Algorithm)
    rollouts: Rollouts = Field(default_factory=Rollouts)
    training: Training
    trainer: Trainer = Field(default_factory=Trainer)
    samplers: SamplerGroups = Field(default_factory=list)
    weight_sync: WeightSync = Field(default_factory=WeightSync)
    storage: Storage = Field(default_factory=Storage)
    lifecycle: Lifecycle = Field(default_factory=Lifecycle)
    scheduling: Scheduling = Field(default_factory=Scheduling)

    @model_validator(mode="after")
    def _is_rewarded(self) -> Self:
        """Once a matter of the schema, so that whoever parses a manifest may rely on it."""
        if not self.algorithm.supervised and not (self.samplers and self.reward.scorers):
            raise ValueError("spec.samplers and spec.reward.scorers must not be empty")
        return self

    @property
    def runs_programs(self) -> bool:
        """Whether samplers run programs that the policy writes."""
        scorers = [scorer.kind for scorer in self.reward.scorers if not scorer.is_own]
        return CODE in (self.agent.kind, *scorers)

    @property
    def program_limits(self) -> Sandbox:
        """Limits of such a program."""
        return self.sandbox or Sandbox()


class SamplerPoolSpec(Model):
    """A set of like sampler pods: a job's own, or shared by jobs."""

    model_config = rules(
        rule(
            "has(self.job) != has(self.model)",
            "a SamplerPool has either job or, where jobs share it, model",
        ),
        rule(
            "has(self.job) == has(oldSelf.job) && "
            "(!has(self.model) || !has(oldSelf.model) || self.model == oldSelf.model)",
            "model cannot change: make a new pool",
        ),
        rule("has(self.model) || self.maxRuns == 1", "maxRuns is for a pool that jobs share"),
        rule(
            "self.maxRuns > 1 || self.networkPolicy == 'RunOnly'",
            "networkPolicy is for a pool with maxRuns above 1: else it is the job's",
        ),
        rule("self.managedBy == oldSelf.managedBy", "managedBy cannot change"),
        rule(
            "has(self.model) || self.managedBy == 'rl-operator.io/operator'",
            "managedBy is for a pool that jobs share: a job's own goes with the job",
        ),
    )
    suspend: bool = False
    """No pods, whatever ``replicas`` says; once false, they come back."""
    managed_by: Literal["rl-operator.io/operator", "kueue.x-k8s.io/multikueue"] = OURS
    """Another controller's pools are left alone."""
    network_policy: NetworkPolicyKind = "RunOnly"
    """Pods reach each other, others their metrics alone; None: no NetworkPolicy is made."""
    weights: Opaque | None = None
    """Refused: samplers follow the run that they serve."""
    service: Opaque | None = None
    """Refused: samplers claim their work, nobody connects to them."""
    replicas: Annotated[int, Field(ge=0, le=MOST_SAMPLERS)] = 1
    """Changed through ``/scale`` alone."""
    job: Name | None = None
    """The RLJob of this namespace whose run is served."""
    model: ModelSource | None = None
    """Of the jobs that share the pool: theirs must be the same."""
    max_runs: Annotated[int, Field(ge=1, le=8)] = 1
    """Runs served at once; several only where all of them train adapters (LoRA)."""
    admitted: Annotated[int, Field(ge=0)] | None = None
    """The most pods that the job's queue admits; unset: it has none."""
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


def _fixed(sections: tuple[str, ...], unless: str, message: str) -> dict[str, str]:
    """One rule for all of these sections, whose message names the one that was changed.

    A write changes either the spec or the status. To compare the sections takes a seventh of what
    the API server does for a status, and of those there are many: that the status is another one
    says that these are the same.
    """
    *others, last = sections
    named = "".join(f"self.spec.{other} != oldSelf.spec.{other} ? '{other}' : " for other in others)
    same = " && ".join(f"self.spec.{section} == oldSelf.spec.{section}" for section in sections)
    return {
        "rule": f"self.status != oldSelf.status || {unless}"
        f"oldSelf.?status.attempt.orValue(0) < 1 || ({same})",
        "messageExpression": f"'spec.' + ({named}'{last}') + ' {message}'",
    }


class RLJob(Model):
    """A run and its state."""

    model_config = rules(
        rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')",
            "metadata.name must be a DNS-1035 label of at most 40 characters: "
            "pods are named after it",
        ),
        rule(
            "self.spec.samplers.all(one, size(one.name) + size(self.metadata.name) <= 62)",
            "metadata.name and a spec.samplers[].name may have at most 62 characters together: "
            "the pool has both",
        ),
        _fixed(
            FIXED_ONCE_STARTED,
            "",
            "cannot change once the trainer has been started: make a new job",
        ),
        _fixed(
            FIXED_UNLESS_SUSPENDED,
            "oldSelf.spec.suspend || ",
            "cannot change while the trainer runs: set spec.suspend first",
        ),
    )
    spec: RLJobSpec
    status: RLJobStatus = Field(default_factory=RLJobStatus)


class SamplerPool(Model):
    """Schema root of the SamplerPool resource."""

    spec: SamplerPoolSpec
    status: SamplerPoolStatus = Field(default_factory=SamplerPoolStatus)
