"""What the operator reports of a job. Computed from observation alone, never read back."""

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
    "Stopped",
    "Failed",
    "Stalled",
    "Terminating",
]
Text = Annotated[str, Field(max_length=1024)]
ShortText = Annotated[str, Field(max_length=256)]
Time = Annotated[str, Field(max_length=256, json_schema_extra={"format": "date-time"})]
"""RFC 3339, e.g. ``2026-11-24T09:30:00Z``."""


class Condition(Model):
    """A condition as in meta/v1."""

    type: ShortText
    """Name of the condition, e.g. `Ready`. All of them: docs/reference/conditions.md."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds; `Unknown` while it cannot be observed."""
    reason: ShortText
    """Why the condition has its status, in one CamelCase word for programs."""
    message: Text = ""
    """What happened, where, and what to do about it, for people."""
    last_transition_time: Time
    """When status changed last."""
    observed_generation: int
    """metadata.generation of the object that the condition was computed from."""


Conditions = Annotated[
    list[Condition],
    Field(
        max_length=24,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]


class TrainerStatus(Model):
    """The trainer's pods of the current attempt."""

    job: ShortText = ""
    """Name of the attempt's PyTorchJob. Empty: there is none."""
    ready: int = 0
    """Number of trainer pods that are ready."""
    desired: int = 0
    """Number of trainer pods of the attempt."""
    summary: ShortText = ""
    """Ready and wanted pods for `kubectl get`, e.g. `1/2`."""
    restarts: int = 0
    """Number of trainer starts after the first."""


class SamplersStatus(Model):
    """The sampler pods of all pools of the job together."""

    desired: int = 0
    """Number of sampler pods that should exist."""
    ready: int = 0
    """Number of sampler pods that are ready."""
    serving: int | None = None
    """Number of pods that are ready and have a policy new enough to train with. Absent: unknown,
    while the state store cannot be read."""
    summary: ShortText = ""
    """Ready and wanted pods for `kubectl get`, e.g. `3/4`."""
    restarts: int = 0
    """Number of sampler pods that ended unexpectedly or were replaced."""


class ProgressStatus(Model):
    """How far the run is. At most about ten seconds old; older beside hundreds of other runs."""

    step: int = 0
    """Number of finished training steps."""
    steps: int = 0
    """Number of training steps in total. 0: not known yet, until epochs have become steps."""
    reward: float | None = None
    """Mean reward of the rollouts of the last step."""
    accuracy: float | None = None
    """Mean reward of the last evaluation over all validation data, at the first temperature
    (avg@k)."""
    pass_at_k: float | None = None
    """Share of validation prompts that at least one sample of the last evaluation answered
    correctly, from 0 to 1."""
    phase: ShortText = ""
    """What the trainer is doing or waiting for, as it reports it."""
    backlog: int | None = None
    """Number of tasks that wait for a sampler or are being sampled. Absent: unknown."""
    tokens_per_second: float | None = None
    """Generated tokens per second over all samplers. Absent: unknown."""
    trainer_wait_share: float = 0.0
    """Share of the trainer's time that it waited for rollouts, from 0 to 1. High: more samplers
    would help."""
    staleness: int | None = None
    """Age in training steps of the oldest token of the last update; at most
    algorithm.offPolicy.maxStaleness."""
    seconds_left: int | None = None
    """Estimated seconds until the last step. Absent: unknown."""
    last_progress_time: Time | None = None
    """When the trainer last made progress: see lifecycle.progressDeadlineSeconds."""


class DatasetStatus(Model):
    """A source of data as the trainer read it, with its last results."""

    name: ShortText
    """Name of the source in spec.data."""
    split: Literal["train", "validation", "test"]
    """List of spec.data that the source is in."""
    records: int
    """Number of records that the source has."""
    skipped: int = 0
    """Number of records, or stored groups, that could not be read and were left out."""
    accuracy: float | None = None
    """Mean reward of the source's last evaluation at the first temperature (avg@k)."""
    pass_at_k: float | None = None
    """Share of the source's prompts that at least one sample answered correctly, from 0 to 1."""
    loss: float | None = None
    """Mean -log π of a token in the last evaluation under objective SFT, in place of accuracy."""
    first_skipped: Annotated[list[Text], Field(max_length=3)] = Field(default_factory=list)
    """File, place and field of the first bad records."""


class ResolvedStatus(Model):
    """Values of the manifest that depend on the trainer's devices."""

    max_tokens_per_microbatch: int
    """Most tokens computed at a time; what `Auto` came to."""
    gradient_checkpointing: bool
    """Whether activations are computed again in the backward pass."""
    processes: int
    """Number of training processes of all replicas together."""
    mesh: ShortText = ""
    """How the processes divide the work, e.g. `fsdp 2 × tp 2`."""


class ImagesStatus(Model):
    """The installation's images, for pods that are made beside the job's own."""

    sampler: Text
    """Image of the agent where the manifest names none."""
    engine: Text
    """Image of the engine where the manifest names none."""
    pull_policy: ShortText = ""
    """imagePullPolicy of the job's pods."""
    pull_secrets: Annotated[list[ShortText], Field(max_length=16)] = Field(default_factory=list)
    """Names of their imagePullSecrets."""


class WeightsStatus(Model):
    """Which policy version is published, and which ones the samplers serve."""

    version: int = 0
    """Newest published policy version; 0: the model that training starts from."""
    min_serving_version: int | None = None
    """Oldest policy version that a ready sampler serves. Absent: unknown."""
    lag: int | None = None
    """Training steps between the published version and the oldest one served. Absent: unknown."""
    uri: Text = ""
    """Folder of the published version in the bucket."""
    digest: ShortText = ""
    """Digest of the published version's weights, which samplers verify."""


class FailureStatus(Model):
    """The last failed attempt, in the words of its pod."""

    attempt: int
    """Number of the attempt that failed."""
    reason: ShortText
    """Why the attempt failed, in one word, e.g. `OOMKilled` or `NotFinite`."""
    message: Text
    """What happened, as the trainer or Kubernetes reports it, often the end of the log."""
    pod: ShortText = ""
    """Name of the pod that failed. Empty: no pod did."""
    container: ShortText = ""
    """Container of the pod that failed. Empty: none did."""
    exit_code: int | None = None
    """Exit code of the container. Absent: it has none."""
    signal: int | None = None
    """Number of the signal that ended the container. Absent: none did."""
    time: Time
    """When the attempt failed."""


class AttemptStatus(Model):
    """One trainer attempt and how it ended."""

    attempt: int
    """Number of the attempt, from 1."""
    result: Literal["Active", "Succeeded", "Failed", "Ignored", "Refused", "Suspended"] = "Active"
    """How it ended. `Active`: not yet. `Ignored`: failed without counting against backoffLimit.
    `Refused`: the trainer refused an option. `Suspended`: stopped on request."""
    reason: ShortText = ""
    """Why the attempt ended, in one word. Empty: it has not ended."""
    replicas: int = 0
    """Number of trainer pods; of an elastic attempt that did not fit, the number that may."""
    start_time: Time
    """When the attempt started."""
    end_time: Time | None = None
    """When the attempt ended. Absent: it is active."""


class OperationStatus(Model):
    """What the operator is in the middle of."""

    kind: Literal["Start", "Suspend", "Restart", "Delete"]
    """What is being done to the job."""
    step: ShortText
    """What the operation is waiting for at present."""
    started_time: Time
    """When the operation began."""
    deadline: Time | None = None
    """When waiting ends or counts as a fault. Absent: there is no deadline."""


class ResourcesStatus(Model):
    """What all trainer and sampler pods that should exist request together.

    Sidecars, pods of programs and environments, and pods of shared pools are not counted.
    """

    gpus: int = 0
    """Number of GPUs that all pods request."""
    cpu: ShortText = "0"
    """CPU, as a Kubernetes quantity, e.g. `12500m`."""
    memory: ShortText = "0"
    """Memory, as a Kubernetes quantity, e.g. `96Gi`."""


class WorkloadRef(Model):
    """The Kueue Workload that reserves the job's place in its queue."""

    name: ShortText
    """Name of the Workload, in the job's namespace."""
    uid: ShortText
    """UID of the Kueue Workload."""


class NoticeStatus(Model):
    """What a trainer had to say about its run when it started, e.g. what a restored store lost."""

    time: Time
    """When the trainer wrote it."""
    reason: ShortText
    """What it is about, in one word, e.g. `CheckpointMissing`."""
    message: Text
    """What happened, what is lost, and what the run does now."""


class RLJobStatus(Model):
    """What the operator last observed of the job."""

    observed_generation: int = -1
    """metadata.generation that the status was computed from; -1 until the operator has seen the
    job, so that GitOps tools do not take it for finished."""
    phase: Phase = "Pending"
    """State of the job in one word, for people. Programs read conditions."""
    attempt: int = 0
    """Number of the current trainer attempt, from 1; 0 before the first."""
    failures: int = 0
    """Number of failed attempts that count against lifecycle.backoffLimit."""
    ignored_failures: int = 0
    """Number of failed attempts that do not count against lifecycle.backoffLimit."""
    elastic_restarts: int = 0
    """Number of failures forgiven by trainer.elastic.maxRestarts since the last one that
    counted."""
    suspensions: int = 0
    """Number of attempts that ended because the job was suspended, by its user or its queue."""
    preemptions: int = 0
    """Number of times that the queue evicted the job."""
    run_id: ShortText = ""
    """ID of the run, under which its documents and objects are stored."""
    workload_ref: WorkloadRef | None = None
    resources: ResourcesStatus = Field(default_factory=ResourcesStatus)
    conditions: Conditions = Field(default_factory=list)
    """State of the job for programs; see docs/reference/conditions.md."""
    trainer: TrainerStatus = Field(default_factory=TrainerStatus)
    samplers: SamplersStatus = Field(default_factory=SamplersStatus)
    progress: ProgressStatus = Field(default_factory=ProgressStatus)
    weights: WeightsStatus = Field(default_factory=WeightsStatus)
    attempts: Annotated[list[AttemptStatus], Field(max_length=10)] = Field(default_factory=list)
    """The last ten trainer attempts, the newest last."""
    model_commit: ShortText | None = None
    """Commit of an `hf://` model that the run uses. Absent: the model is in a bucket, or not
    resolved yet."""
    operation: OperationStatus | None = None
    images: ImagesStatus | None = None
    """Images with which `kubectl rl download`, `promote` and `serve` make pods, also once the job
    has ended. Absent: an earlier release ran the job."""
    resolved: ResolvedStatus | None = None
    """Values that depend on the trainer's devices, as the last attempt uses them. Absent: it has
    not loaded the model."""
    datasets: Annotated[list[DatasetStatus], Field(max_length=32)] = Field(default_factory=list)
    """Sources of data as the trainer read them."""
    notices: Annotated[list[NoticeStatus], Field(max_length=8)] = Field(default_factory=list)
    """What trainers had to say about the run, the newest last: above all what was lost with a store
    that was restored from a backup."""
    last_failure: FailureStatus | None = None
    next_retry_time: Time | None = None
    """When the next attempt starts after a failure. Absent: none is waiting."""
    start_time: Time | None = None
    """When the first attempt started."""
    active_since: Time | None = None
    """Moment from which lifecycle.activeDeadlineSeconds counts."""
    completion_time: Time | None = None
    """When the job finished. Absent: it has not."""
    final_model: Text = ""
    """Folder of the final model in the bucket, in Hugging Face layout. Empty: there is none yet."""
