"""What the operator says of an object. Computed from observation alone, never read back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rl_contracts.spec.base import Model

Phase = Literal[
    "Pending",
    "Queued",
    "Starting",
    "Running",
    "Recovering",
    "Suspending",
    "Suspended",
    "Succeeded",
    "Failed",
    "Stalled",
    "Terminating",
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
    """Trainer starts after the first."""


class SamplersStatus(Model):
    """All pools of the job together."""

    desired: int = 0
    ready: int = 0
    serving: int | None = None
    """Ready and at an allowed policy version; absent: unknown."""
    summary: ShortText = ""
    restarts: int = 0
    """Pods that died or had to be replaced."""


class ProgressStatus(Model):
    """How far it is; ten seconds old at most, more beside 500 other runs."""

    step: int = 0
    steps: int = 0
    """0 until epochs have become steps."""
    reward: float | None = None
    """Mean reward of the last step's rollouts."""
    accuracy: float | None = None
    """Mean reward of the last evaluation over all validation data."""
    pass_at_k: float | None = None
    """Prompts that some sample answered, of all."""
    phase: ShortText = ""
    """The trainer's own words for what it does or waits for."""
    backlog: int | None = None
    """Tasks that wait or are sampled; absent: unknown."""
    tokens_per_second: float | None = None
    """Generated, over all samplers."""
    trainer_wait_share: float = 0.0
    """Share of the trainer's time spent waiting for rollouts, in [0, 1]."""
    staleness: int | None = None
    """Age in steps of the last update's oldest token; at most maxStaleness."""
    seconds_left: int | None = None
    last_progress_time: ShortText | None = None


class DatasetStatus(Model):
    """A source of data as the trainer read it."""

    name: ShortText
    split: Literal["train", "validation", "test"]
    records: int
    skipped: int = 0
    """Bad records left out."""
    accuracy: float | None = None
    """Of its last evaluation, first temperature: avg@k."""
    pass_at_k: float | None = None
    """As in progress."""
    loss: float | None = None
    """In their place, SFT: mean -log π of a token."""
    first_skipped: Annotated[list[Text], Field(max_length=3)] = Field(default_factory=list)
    """File, place and field of the first."""


class WeightsStatus(Model):
    """Which policy is published and which ones are served."""

    version: int = 0
    min_serving_version: int | None = None
    lag: int | None = None
    """Steps between the published policy and the oldest one served."""
    uri: Text = ""
    digest: ShortText = ""


class FailureStatus(Model):
    """The last failed attempt in the pod's own words."""

    attempt: int
    reason: ShortText
    message: Text
    pod: ShortText = ""
    container: ShortText = ""
    exit_code: int | None = None
    signal: int | None = None
    time: ShortText


class AttemptStatus(Model):
    """One trainer attempt."""

    attempt: int
    result: Literal["Active", "Succeeded", "Failed", "Ignored", "Refused", "Suspended"] = "Active"
    reason: ShortText = ""
    replicas: int = 0
    """Of one that did not fit: what may."""
    start_time: ShortText
    end_time: ShortText | None = None


class OperationStatus(Model):
    """What the operator is in the middle of."""

    kind: Literal["Start", "Suspend", "Restart", "Delete"]
    step: ShortText
    started_time: ShortText
    deadline: ShortText | None = None
    """When its waiting counts as a fault, or ends."""


class ResourcesStatus(Model):
    """What all pods that ought to be there ask for."""

    gpus: int = 0
    cpu: ShortText = "0"
    memory: ShortText = "0"


class WorkloadRef(Model):
    """The job's place in its queue."""

    name: ShortText
    uid: ShortText


class RLJobStatus(Model):
    """Status of an RLJob."""

    observed_generation: int = -1
    """-1 until the operator has seen it, else GitOps tools take it for finished."""
    phase: Phase = "Pending"
    attempt: int = 0
    """Ordinal of the trainer attempt; 0 before the first."""
    failures: int = 0
    """Failed attempts that count against lifecycle.backoffLimit."""
    ignored_failures: int = 0
    """Failed attempts that do not."""
    elastic_restarts: int = 0
    """Of trainer.elastic.maxRestarts, since one that counts."""
    preemptions: int = 0
    """Evictions by its queue."""
    run_id: ShortText = ""
    workload_ref: WorkloadRef | None = None
    resources: ResourcesStatus = Field(default_factory=ResourcesStatus)
    conditions: Conditions = Field(default_factory=list)
    trainer: TrainerStatus = Field(default_factory=TrainerStatus)
    samplers: SamplersStatus = Field(default_factory=SamplersStatus)
    progress: ProgressStatus = Field(default_factory=ProgressStatus)
    weights: WeightsStatus = Field(default_factory=WeightsStatus)
    attempts: Annotated[list[AttemptStatus], Field(max_length=10)] = Field(default_factory=list)
    """The last ten, the newest last."""
    model_commit: ShortText | None = None
    """Of an hf:// model."""
    operation: OperationStatus | None = None
    datasets: Annotated[list[DatasetStatus], Field(max_length=32)] = Field(default_factory=list)
    last_failure: FailureStatus | None = None
    next_retry_time: ShortText | None = None
    start_time: ShortText | None = None
    active_since: ShortText | None = None
    """Begin of lifecycle.activeDeadlineSeconds."""
    completion_time: ShortText | None = None
    final_model: Text = ""


class ScaleStatus(Model):
    """One change of a pool's size by the operator."""

    time: ShortText
    before: int
    after: int
    reason: ShortText
    message: Text = ""
    tokens_per_second: float = 0.0
    """Of all pods just before."""


class AssignmentStatus(Model):
    """Whom a shared pool serves."""

    job: ShortText
    uid: ShortText
    """Of the job."""
    run: ShortText
    since: ShortText


class ServedStatus(Model):
    """One of several runs that a shared pool serves."""

    job: ShortText
    serving: int | None = None
    lagging: int | None = None
    version: int | None = None
    target_version: int = 0
    lag: int | None = None


class WaitingStatus(Model):
    """A job that waits for a shared pool."""

    job: ShortText
    since: ShortText
    why: Text = ""
    """Of the first one: why it cannot have the pool beside those that have it."""


class SamplerPoolStatus(Model):
    """Status of a SamplerPool."""

    observed_generation: int = -1
    replicas: int = 0
    selector: Text = ""
    ready: int = 0
    serving: int | None = None
    """Absent, as version and lag: unknown, while the state store is away."""
    updated: int = 0
    unavailable: int = 0
    draining: int = 0
    """Pods that finish what they have and end."""
    replaced: int = 0
    """Pods that were deleted because they stayed stale or silent."""
    target_version: int = 0
    """The published policy version."""
    lagging: int | None = None
    """Pods that serve a policy too old to train with."""
    version: int | None = None
    """Oldest policy version that a ready pod serves; 0 when none does."""
    lag: int | None = None
    """Training steps between the published policy and that one."""
    last_scale: Annotated[list[ScaleStatus], Field(max_length=5)] = Field(default_factory=list)
    """The newest last."""
    assignment: AssignmentStatus | None = None
    """Of a shared pool: the run that has it, the first of those that have it at once."""
    beside: Annotated[list[AssignmentStatus], Field(max_length=7)] = Field(default_factory=list)
    """The others, in the order in which they joined."""
    assignment_epoch: int = 0
    """Grows whenever the pool is given to a run or taken from it."""
    assignment_began: int = 0
    """What it was when the pool was given away last while nobody had it."""
    runs: Annotated[list[ServedStatus], Field(max_length=8)] = Field(default_factory=list)
    """Where several runs have the pool: each one's counters, those above being of the first."""
    waiting: Annotated[list[WaitingStatus], Field(max_length=32)] = Field(default_factory=list)
    """The first of those that wait, in their order."""
    waiting_jobs: int = 0
    """All that wait."""
    conditions: Conditions = Field(default_factory=list)
