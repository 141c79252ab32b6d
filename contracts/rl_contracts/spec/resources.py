"""The two custom resources."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from rl_contracts.spec.agent.agents import Agent
from rl_contracts.spec.agent.sandbox import CODE, Sandbox
from rl_contracts.spec.agent.user_code import Code
from rl_contracts.spec.algorithm.algorithm import Algorithm
from rl_contracts.spec.algorithm.estimator import OF_ONE
from rl_contracts.spec.base import Model, Name, listed, rule, rules
from rl_contracts.spec.data import COMMIT, Data, ModelSource
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


MANAGERS = Literal["rl-operator.io/operator", "kueue.x-k8s.io/multikueue"]
MOST_POD_SETS = 8
"""Of a Kueue Workload; the trainer's is one of them."""
SOURCES = {
    "train": "(has(self.data.train) ? self.data.train : [])",
    "validation": "self.data.validation",
    "test": "self.data.test",
}
"""CEL for each list of sources."""

_OF_SECTIONS = (
    rule(
        "!has(self.sandbox) || self.agent.kind == 'Code' || self.reward.scorers.exists(scorer, "
        "scorer.kind == 'Code' && !has(scorer.entryPoint) && !has(scorer.judge))",
        "spec.sandbox is set, and nothing of this job runs programs: remove it, or use agent.kind "
        "Code or a scorer of kind Code",
        field="sandbox",
    ),
    *(
        rule(
            f"self.agent.kind == 'Conversation' || {sources}.all(source, "
            "!has(source.columns) || !has(source.columns.scenario))",
            f"data.{name}[].columns.scenario is for agent.kind Conversation, and agent.kind is "
            "{self.agent.kind}: remove it or change the kind",
            field=f"data.{name}",
        )
        for name, sources in SOURCES.items()
    ),
    *(
        rule(
            "self.agent.kind != 'Conversation' || has(self.agent.user) || "
            f"{sources}.all(source, has(source.columns) && has(source.columns.scenario))",
            f"data.{name}[].columns.scenario is unset and so is agent.user: under agent.kind "
            "Conversation name the column with the user's further turns, or set agent.user",
            field=f"data.{name}",
        )
        for name, sources in SOURCES.items()
    ),
    rule(
        "!has(self.training.checkpoint.hubRepo) || has(self.data.hub.tokenSecretRef)",
        "training.checkpoint.hubRepo is {self.training.checkpoint.hubRepo}, and uploading needs a "
        "token: set data.hub.tokenSecretRef to one that may write there",
        field="training.checkpoint.hubRepo",
    ),
    rule(
        "self.networkPolicy == 'RunOnly' || !self.weightSync.transport.relay",
        "weightSync.transport.relay is true, and with networkPolicy None any pod could read "
        "weights from samplers: set relay to false or networkPolicy to RunOnly",
        field="weightSync.transport.relay",
    ),
    rule(
        "self.training.optimizer.kind != 'AdamW8bit' || "
        "self.trainer.replicas * self.trainer.processesPerReplica == 1",
        "training.optimizer.kind AdamW8bit is for a trainer of one process: use AdamW, or set "
        "trainer.replicas and processesPerReplica to 1",
        field="training.optimizer.kind",
    ),
    rule(
        "!has(self.algorithm.critic) || !has(self.training.steps) || "
        "self.algorithm.critic.warmupSteps < self.training.steps",
        "algorithm.critic.warmupSteps must be below training.steps, else the policy is never "
        "trained: {self.algorithm.critic.warmupSteps} is not below {self.training.steps}",
        field="algorithm.critic.warmupSteps",
    ),
)
"""Rules on options of two sections."""

_OF_LORA = (
    rule(
        "!has(self.training.lora) || self.weightSync.pause == 'Retract'",
        "weightSync.pause is {self.weightSync.pause}, and with training.lora nothing pauses: "
        "running requests keep their adapter; remove pause",
        field="weightSync.pause",
    ),
    rule(
        "!has(self.training.lora) || !has(self.training.lora.quantization) || "
        "!has(self.algorithm.critic) || has(self.algorithm.critic.model)",
        "training.lora.quantization is {self.training.lora.quantization}, and the critic trains "
        "all weights of the model that it starts from, which cannot be quantized: set "
        "algorithm.critic.model or remove quantization",
        field="training.lora.quantization",
    ),
    rule(
        "!has(self.training.lora) || !has(self.algorithm.kl) || "
        "!has(self.algorithm.kl.refreshEverySteps)",
        "algorithm.kl.refreshEverySteps is {self.algorithm.kl.refreshEverySteps}, and with "
        "training.lora the reference is the model without its adapters: remove it, or train all "
        "weights",
        field="algorithm.kl.refreshEverySteps",
    ),
)
"""Rules on what does not go with adapters."""

_OF_QUEUE = (
    rule(
        "self.scheduling.provider != 'Kueue' || self.scheduling.samplerQuota == 'None' || "
        f"size(self.samplers) < {MOST_POD_SETS}",
        "spec.samplers has {size(self.samplers)} groups, and a Kueue Workload has at most "
        f"{MOST_POD_SETS} pod sets, of which the trainer is one: have at most {MOST_POD_SETS - 1} "
        "groups",
        field="samplers",
    ),
    rule(
        "self.scheduling.provider != 'Kueue' || self.samplers.all(group, !has(group.poolRef))",
        "spec.samplers[].poolRef does not go with scheduling.provider Kueue, since no queue admits "
        "a shared pool's pods: give the group a template, or set provider to None",
        field="samplers",
    ),
    rule(
        "self.scheduling.provider != 'Kueue' || self.scheduling.samplerQuota != 'MaxReplicas' || "
        "self.samplers.all(group, !has(group.template) || !has(group.template.rollout) || "
        "!has(group.template.rollout.maxSurge) || "
        "string(group.template.rollout.maxSurge) in ['0', '0%'])",
        "spec.samplers[].template.rollout.maxSurge must be 0 with scheduling.provider Kueue: these "
        "pods would come on top of those that the queue admits",
        field="samplers",
    ),
)
"""Rules on what would take more than a queue admits."""


class RLJobSpec(Model):
    """One RL post-training run: what is learned, from which model and data, and with which pods."""

    model_config = rules(
        rule(
            "self.algorithm.objective == 'Evaluation' || (has(self.data.train) && "
            "has(self.training.steps) != has(self.training.epochs))",
            "training is as long as either steps or epochs say: set one of training.steps and "
            "training.epochs, and data.train",
        ),
        rule(
            "self.algorithm.objective != 'Evaluation' || "
            "size(self.data.validation) + size(self.data.test) > 0",
            "algorithm.objective Evaluation needs data to evaluate on: set data.validation or "
            "data.test",
            field="data",
        ),
        rule(
            "size(self.data.validation) > 0 || !has(self.training.evaluation.everySteps)",
            "training.evaluation.everySteps is {self.training.evaluation.everySteps} and needs "
            "data.validation: add a source or remove everySteps",
            field="training.evaluation.everySteps",
        ),
        rule(
            "self.weightSync.everySteps <= self.algorithm.offPolicy.maxStaleness + 1",
            "weightSync.everySteps must be at most algorithm.offPolicy.maxStaleness + 1: "
            "{self.weightSync.everySteps} is more than "
            "{self.algorithm.offPolicy.maxStaleness + 1}",
            field="weightSync.everySteps",
        ),
        rule(
            "!has(self.rollouts.completion.minimum) || "
            "self.rollouts.completion.minimum <= self.algorithm.groupSize",
            "rollouts.completion.minimum must not exceed algorithm.groupSize: "
            "{self.rollouts.completion.minimum} is more than {self.algorithm.groupSize}",
            field="rollouts.completion.minimum",
        ),
        rule(
            "!has(self.rollouts.completion.minimum) || "
            "self.rollouts.completion.minimum >= self.algorithm.estimator.?k.orValue(2) || "
            f"self.algorithm.estimator.kind in {listed(OF_ONE)}",
            "this algorithm.estimator.kind compares members: "
            "rollouts.completion.minimum must be at least 2, of PassAtK estimator.k",
            field="rollouts.completion.minimum",
        ),
        rule(
            "[size(self.samplers), size(self.reward.scorers)].all(n, "
            "(n == 0) == (self.algorithm.objective == 'SFT'))",
            "spec.samplers and spec.reward.scorers go with every algorithm.objective but SFT: add "
            "what is missing, or under SFT remove both",
        ),
        rule(
            "self.runId == oldSelf.runId && self.managedBy == oldSelf.managedBy",
            "spec.managedBy and spec.runId cannot change: make a new job",
        ),
        *_OF_SECTIONS,
        *_OF_LORA,
        *_OF_QUEUE,
    )
    suspend: bool = False
    """true stops all pods after a checkpoint; false lets the run go on from there."""
    managed_by: MANAGERS = OURS
    """Controller responsible for this job: this operator, or Kueue's MultiKueue. Cannot change."""
    run_id: RunId = ""
    """ID of a deleted job's run to resume (its status.runId). Cannot change. Empty: a new run."""
    network_policy: NetworkPolicyKind = "RunOnly"
    """`RunOnly`: a NetworkPolicy lets the run's pods reach each other and others only their
    metrics. `None`: no NetworkPolicy is created."""
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
    samplers: SamplerGroups = Field(default_factory=list)
    """Groups of sampler pods, at least one. Empty only under algorithm.objective SFT."""
    weight_sync: WeightSync = Field(default_factory=WeightSync)
    storage: Storage = Field(default_factory=Storage)
    lifecycle: Lifecycle = Field(default_factory=Lifecycle)
    scheduling: Scheduling = Field(default_factory=Scheduling)

    @model_validator(mode="after")
    def _is_rewarded(self) -> Self:
        """As the CEL rule says; code that has parsed a manifest may rely on it."""
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
    """A set of equal sampler pods: the pool of one job, or a pool that several jobs share."""

    model_config = rules(
        rule(
            "has(self.job) != has(self.model)",
            "a SamplerPool has either job or, where jobs share it, model: set one of them",
        ),
        rule(
            "has(self.job) == has(oldSelf.job) && "
            "(!has(self.model) || !has(oldSelf.model) || self.model == oldSelf.model)",
            "spec.model cannot change, nor can a pool of a job become a shared one: make a new "
            "pool",
        ),
        rule(
            "has(self.model) || self.maxRuns == 1",
            "spec.maxRuns is for a pool that jobs share: remove it, or set model instead of job",
            field="maxRuns",
        ),
        rule(
            "self.maxRuns > 1 || self.networkPolicy == 'RunOnly'",
            "spec.networkPolicy is for a pool with maxRuns above 1: set it in the job instead",
            field="networkPolicy",
        ),
        rule(
            "self.managedBy == oldSelf.managedBy",
            "spec.managedBy cannot change: make a new pool",
            field="managedBy",
        ),
        rule(
            "has(self.model) || self.managedBy == 'rl-operator.io/operator'",
            "spec.managedBy is for a pool that jobs share: a pool of a job goes with the job; "
            "remove it",
            field="managedBy",
        ),
        rule(
            "self.maxRuns == 1 || self.template.autoscaling.mode != 'Builtin'",
            "spec.template.autoscaling.mode Builtin judges by one run, and maxRuns is "
            "{self.maxRuns}: use mode None and /scale, which an HPA or KEDA may set, or maxRuns 1",
            field="template.autoscaling.mode",
        ),
        rule(
            "self.maxRuns == 1 || !has(self.model) || !self.model.uri.startsWith('hf://') || "
            f"self.model.uri.matches('@{COMMIT}$') || "
            f"(has(self.model.revision) && self.model.revision.matches('^{COMMIT}$'))",
            "spec.model.uri must name a commit with maxRuns above 1, for runs that start at "
            "different times must have the same model: write {self.model.uri.split('@')[0]}@<40 "
            "hexadecimal digits> in the pool and in its jobs",
            field="model.uri",
        ),
        rule(
            "self.maxRuns == 1 || !has(self.model) || !has(self.model.tokenizerUri) || "
            "!self.model.tokenizerUri.startsWith('hf://') || "
            f"self.model.tokenizerUri.matches('@{COMMIT}$')",
            "spec.model.tokenizerUri must name a commit with maxRuns above 1, for runs that start "
            "at different times must have the same tokenizer: append @<40 hexadecimal digits>",
            field="model.tokenizerUri",
        ),
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


def _fixed(sections: tuple[str, ...], unless: str, message: str) -> dict[str, str]:
    """One rule for all of these sections, whose message names the one that was changed.

    A write changes either the spec or the status, and most writes are of a status. So the status is
    compared first: when it has changed, the sections have not, and comparing them would take a
    seventh of the API server's time for each write.
    """
    *others, last = sections
    named = "".join(f"self.spec.{other} != oldSelf.spec.{other} ? '{other}' : " for other in others)
    same = " && ".join(f"self.spec.{section} == oldSelf.spec.{section}" for section in sections)
    return {
        "rule": f"self.status != oldSelf.status || {unless}"
        f"oldSelf.?status.attempt.orValue(0) < 1 || ({same})",
        "messageExpression": f"'spec.%s {message}'.format([{named}'{last}'])",
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
    """A pool of sampler pods, of one job or shared by several: its specification and its state."""

    spec: SamplerPoolSpec
    status: SamplerPoolStatus = Field(default_factory=SamplerPoolStatus)
