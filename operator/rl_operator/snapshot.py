"""What is observed, parsed once from what the API server says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from rl_contracts.spec.resources import RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.status import RLJobStatus, SamplerPoolStatus
from rl_operator.kinds import RLJOB, Key
from rl_operator.names import (
    APPLIED_ANNOTATION,
    ATTEMPT_LABEL,
    COMPONENT_LABEL,
    DELETION_COST,
    POOL_LABEL,
)
from rl_operator.scrub import scrubbed

Raw = Mapping[str, Any]
NO_START_REASONS = ("ContainerCreating", "PodInitializing")
"""Words of the kubelet for a container that waits for nothing in particular."""
TROUBLE_CHARACTERS = MESSAGE_CHARACTERS = 400
DISRUPTED = "DisruptionTarget"
"""Condition of a pod that is evicted or preempted, with the reason."""
PULL_REASONS = ("ImagePullBackOff", "ErrImagePull")


def parse_time(text: str | None) -> float | None:
    """Seconds since 1970 of an API server's timestamp."""
    return datetime.fromisoformat(text).timestamp() if text else None


def format_time(seconds: float) -> str:
    """An API timestamp, whole seconds, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """The metadata that matter."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    created_at: float
    deleted_at: float | None
    """When deletion was asked for; of a pod, when its grace period is over."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    finalizers: tuple[str, ...]
    owner_uid: str
    """Of the controlling owner; empty without one."""
    adopted_run: str = ""
    """Of a job whose ``spec.runId`` names a run; empty: its run is its own."""

    @property
    def run(self) -> str:
        """Of a job: the run that it works on."""
        return self.adopted_run or self.uid

    @classmethod
    def parse(cls, raw: Raw) -> Meta:
        """Parse an object's metadata."""
        meta = raw["metadata"]
        adopted = raw["spec"].get("runId", "") if raw.get("kind") == RLJOB.name else ""
        owners = [one for one in meta.get("ownerReferences", []) if one.get("controller")]
        return cls(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            generation=meta.get("generation", 0),
            resource_version=meta["resourceVersion"],
            created_at=parse_time(meta["creationTimestamp"]) or 0.0,
            deleted_at=parse_time(meta.get("deletionTimestamp")),
            labels=meta.get("labels", {}),
            annotations=meta.get("annotations", {}),
            finalizers=tuple(meta.get("finalizers", ())),
            owner_uid=owners[0]["uid"] if owners else "",
            adopted_run=adopted,
        )

    @property
    def applied(self) -> str:
        """Digest of the manifest that the operator applied last; empty when it never did."""
        return self.annotations.get(APPLIED_ANNOTATION, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """An object that we own, or that has a name we want."""

    kind: str
    meta: Meta
    raw: Raw

    @property
    def declared(self) -> tuple[object, ...]:
        """Changes whenever anything that one may declare of it does; a status does not count."""
        meta = self.meta
        marks = (*sorted(meta.labels.items()), *sorted(meta.annotations.items()))
        return (
            self.kind,
            meta.name,
            meta.uid,
            meta.generation,
            meta.deleted_at,
            meta.owner_uid,
            marks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container's state."""

    name: str
    waiting: str = ""
    """Why it does not run, in the kubelet's word; empty when it runs."""
    message: str = ""
    exit_code: int | None = None
    """Of its last end, when it has ended."""
    exit_reason: str = ""
    signal: int = 0

    @classmethod
    def parse(cls, raw: Raw) -> Container:
        """Parse a containerStatus."""
        state, last = raw.get("state", {}), raw.get("lastState", {})
        ended = state.get("terminated") or last.get("terminated") or {}
        waiting = state.get("waiting") or {}
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason in PULL_REASONS:
            # The kubelet goes to and fro between the two: one word, or the status would too.
            reason, message = PULL_REASONS[0], message.split(": ErrImagePull: ")[-1]
        return cls(
            name=raw["name"],
            waiting=reason,
            message=scrubbed(
                message if reason != "CrashLoopBackOff" and message else ended.get("message", "")
            ),
            exit_code=ended.get("exitCode"),
            exit_reason=ended.get("reason", ""),
            signal=ended.get("signal", 0),
        )


TRAINER_CONTAINER = "pytorch"
ORDINARY_CODES = {0, 1, 143}
"""With which a trainer's process ends when another one has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A trainer's or a sampler's pod."""

    name: str
    uid: str
    phase: str
    ready: bool
    deleting: bool
    component: str
    gone_by: float | None = None
    """When it ought to be gone, once its deletion was asked for."""
    pool: str = ""
    attempt: int = 0
    created_at: float = 0.0
    started_at: float | None = None
    unscheduled: str = ""
    """Why no node takes it."""
    reason: str = ""
    """Of its end, e.g. ``Evicted``, also of one that is still to come."""
    message: str = ""
    """Of its end, e.g. which of its limits it was over."""
    conditions: tuple[str, ...] = ()
    """Types of those that are True."""
    deletion_cost: int = 0
    """The lowest goes first when a ReplicaSet shrinks."""
    containers: tuple[Container, ...] = ()

    @classmethod
    def parse(cls, raw: Raw) -> Pod:
        """Parse a pod."""
        meta, status = Meta.parse(raw), raw.get("status", {})
        conditions = {one["type"]: one for one in status.get("conditions", [])}
        scheduled = conditions.get("PodScheduled", {})
        disrupted = conditions.get(DISRUPTED, {})
        if disrupted.get("status") != "True":
            disrupted = {}
        message = status.get("message") or disrupted.get("message", "")
        running = [
            one["state"]["running"].get("startedAt")
            for one in status.get("containerStatuses", [])
            if "running" in one.get("state", {})
        ]
        statuses = (
            *status.get("initContainerStatuses", []), *status.get("containerStatuses", []),
        )  # fmt: skip
        return cls(
            name=meta.name,
            uid=meta.uid,
            phase=status.get("phase", "Pending"),
            ready=conditions.get("Ready", {}).get("status") == "True",
            deleting=meta.deleted_at is not None,
            gone_by=meta.deleted_at,
            component=meta.labels.get(COMPONENT_LABEL, ""),
            pool=meta.labels.get(POOL_LABEL, ""),
            attempt=int(meta.labels.get(ATTEMPT_LABEL, "0")),
            created_at=meta.created_at,
            started_at=parse_time(running[0]) if running else None,
            unscheduled=scheduled.get("message", "") if scheduled.get("status") == "False" else "",
            reason=status.get("reason") or disrupted.get("reason", ""),
            message=scrubbed(message.strip())[:MESSAGE_CHARACTERS],
            deletion_cost=_cost(meta),
            conditions=tuple(
                sorted(kind for kind, one in conditions.items() if one.get("status") == "True")
            ),
            containers=tuple(Container.parse(one) for one in statuses),
        )

    @property
    def live(self) -> bool:
        """Whether any of its containers may still run."""
        return self.phase not in ("Succeeded", "Failed")

    @property
    def remains(self) -> bool:
        """Whether it holds anything, or is about to go: its containers may have ended before it."""
        return self.live or self.deleting

    @property
    def telling(self) -> int:
        """How much its state says of a trainer of several pods: the more, the higher.

        One that was killed tells why the others end, with 1; one that does not start, why they
        wait.
        """
        if not self.live:
            codes = {one.exit_code for one in self.containers if one.name == TRAINER_CONTAINER}
            return 1 if codes and codes <= ORDINARY_CODES and not self.reason else 3
        return 2 if self.phase == "Pending" else 0

    def trouble(self) -> str:
        """What keeps the pod from running, in one line; empty when nothing is known."""
        if self.unscheduled:
            return f"{self.name} fits no node: {self.unscheduled}"
        for one in self.containers:
            if one.waiting and one.waiting not in NO_START_REASONS:
                ended = f", last exit code {one.exit_code}" if one.exit_code is not None else ""
                message = f": {one.message.strip()[-TROUBLE_CHARACTERS:]}" if one.message else ""
                return f"{self.name} container {one.name} {one.waiting}{ended}{message}"
        return ""


def _cost(meta: Meta) -> int:
    try:
        return int(meta.annotations.get(DELETION_COST, "0"))
    except ValueError:
        return 0


def first_trouble(pods: Iterable[Pod]) -> str:
    """The first trouble of some pods, by name."""
    return next(filter(None, (pod.trouble() for pod in sorted(pods, key=lambda one: one.name))), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerJob:
    """The trainer's job object of one attempt."""

    name: str
    uid: str
    attempt: int
    created_at: float
    state: Literal["Active", "Succeeded", "Failed"]
    message: str = ""
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A sampler pool, or why its spec cannot be read."""

    meta: Meta
    spec: SamplerPoolSpec | None
    spec_error: str
    status: SamplerPoolStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An RLJob, or why its spec cannot be read."""

    meta: Meta
    spec: RLJobSpec | None
    spec_error: str
    status: RLJobStatus
    held: bool = False
    """Its queue has not admitted it, or not any more."""

    @property
    def suspended(self) -> bool:
        """Whether it ought to have no pods."""
        return self.spec is not None and (self.spec.suspend or self.held)

    @property
    def keeps_samplers(self) -> bool:
        """Whether its samplers stay when it has finished."""
        return self.spec is not None and self.spec.lifecycle.cleanup_policy == "None"

    @property
    def finished(self) -> bool:
        """Whether it has completed or failed, for good."""
        ended = ("Complete", "Failed")
        return any(one.type in ended and one.status == "True" for one in self.status.conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """Everything in Kubernetes that concerns one RLJob."""

    key: Key
    job: Job
    children: Mapping[tuple[str, str], Child]
    """By kind and name; pools and trainers among them."""
    pools: tuple[Pool, ...] = ()
    trainers: tuple[TrainerJob, ...] = ()
    """By attempt."""
    pods: tuple[Pod, ...] = ()
    """Of this very run."""
    has_trainer_kind: bool = True
    """Whether the API server knows the trainer's kind of object."""
    has_queue_kind: bool = True
    """Whether it knows a queue's, for a job that asks one."""
    shared: Pool | None = None
    """The shared pool that the spec names, if it is there; one of ``pools`` while it is ours."""

    @property
    def names_pool(self) -> bool:
        """Whether a group of the spec is a shared pool."""
        spec = self.job.spec
        return spec is not None and any(one.pool_ref is not None for one in spec.samplers)

    def current_trainer(self) -> TrainerJob | None:
        """The trainer's job object of the attempt that the status names."""
        wanted = self.job.status.attempt
        return next((one for one in self.trainers if one.attempt == wanted), None)

    def trainer_pods(self, attempt: int) -> tuple[Pod, ...]:
        """Pods of one attempt, the one that tells most last: it decides for all of them."""
        found = (one for one in self.pods if one.component == "trainer" and one.attempt == attempt)
        return tuple(sorted(found, key=lambda one: (one.telling, one.created_at)))

    def sampler_pods(self) -> tuple[Pod, ...]:
        """Pods of all pools."""
        return tuple(one for one in self.pods if one.component == "sampler")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentState:
    """What the Deployment controller says."""

    there: bool = False
    declared: int = 0
    """Pods that it ought to have, as it was applied last."""
    seen: bool = True
    """Whether its controller has seen what was applied last."""
    epoch: int = 0
    """Of a shared pool: of the assignment that it was written for."""
    replicas: int = 0
    ready: int = 0
    updated: int = 0
    stuck: str = ""
    """Why it does not progress any more; empty while it does."""
    behind: bool = False
    """Its numbers are of what was applied before the last time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """Everything in Kubernetes that concerns one SamplerPool."""

    key: Key
    pool: Pool
    job: Job | None
    children: Mapping[tuple[str, str], Child] = field(default_factory=dict)
    deployment: DeploymentState = DeploymentState()
    pods: tuple[Pod, ...] = ()
    jobs: tuple[Job, ...] = ()
    """Of a shared pool: all that name it."""

    @property
    def held(self) -> bool:
        """Whether its job's queue admits none of its pods, or its job has not said so yet."""
        job, spec = self.job, self.pool.spec
        if job is None or job.spec is None or spec is None or not job.spec.scheduling.queued:
            return False
        return not spec.admitted

    @property
    def size(self) -> int:
        """Pods that there ought to be while the job is at work."""
        job, spec = self.job, self.pool.spec
        assert spec is not None
        queued = job is not None and job.spec is not None and job.spec.scheduling.queued
        return spec.size if queued else spec.replicas
