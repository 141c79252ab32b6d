"""Immutable snapshots of everything in Kubernetes that concerns one job or one pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.spec.pool_status import AssignmentStatus, SamplerPoolStatus
from rl_contracts.spec.resources import OURS, RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.status import RLJobStatus
from rl_operator.kube.conditions import find
from rl_operator.kube.kinds import Key
from rl_operator.kube.metadata import Child, Meta, Raw
from rl_operator.kube.weak_memo import WeakMemo
from rl_operator.state.deployment_state import DeploymentState
from rl_operator.state.pod import Pod, first_trouble
from rl_operator.state.trainer_job import TrainerJob

NOT_CREATED = "PodsNotCreated"
"""Reason of a pool's ``Ready`` while its Deployment cannot create pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A SamplerPool, or why its spec cannot be parsed."""

    meta: Meta
    spec: SamplerPoolSpec | None
    spec_error: str
    status: SamplerPoolStatus

    @property
    def stall(self) -> str:
        """Why it cannot be reconciled until somebody acts; empty if it can."""
        stalled = find(self.status.conditions, "Stalled")
        if stalled is None or stalled.status != "True":
            return ""
        return f"SamplerPool {self.meta.name} is Stalled ({stalled.reason}): {stalled.message}"

    @property
    def holders(self) -> tuple[AssignmentStatus, ...]:
        """Of a shared pool: the jobs that it serves, in the order in which they got it."""
        first = self.status.assignment
        return (first, *self.status.beside) if first is not None else ()

    @property
    def trouble(self) -> str:
        """Why it can create no pods, or cannot be changed; empty if nothing is known."""
        ready = find(self.status.conditions, "Ready")
        if self.stall or ready is None or ready.reason != NOT_CREATED:
            return self.stall
        return f"SamplerPool {self.meta.name}: {ready.message}"

    def serves(self, job: Job) -> bool:
        """Whether the pool serves this very job's run."""
        return self.given(job) is not None

    def given(self, job: Job) -> AssignmentStatus | None:
        """The status entry of this very job; None when the pool does not serve it."""
        mine = (job.meta.name, job.meta.uid)
        return next((holder for holder in self.holders if (holder.job, holder.uid) == mine), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Basics:
    """Fields of a spec that are known even when the rest of it cannot be parsed."""

    suspend: bool = False
    stop: bool = False
    """Its run ends for good once its pods have stopped."""
    queued: bool = False
    """Pods need a queue's admission."""
    queue_name: str = ""
    deletes_data: bool = False
    """Deleting the job deletes its documents and objects."""
    suspend_grace_seconds: int = Lifecycle().suspend_grace_seconds
    elsewhere: bool = False
    """Another controller manages the job."""

    @property
    def wants_no_pods(self) -> bool:
        """Whether the user has suspended the job, or stopped it for good."""
        return self.suspend or self.stop

    @classmethod
    def of(cls, spec: RLJobSpec) -> Basics:
        """The fields of a spec that was parsed."""
        return cls(
            suspend=spec.suspend,
            stop=spec.stop,
            queued=spec.scheduling.queued,
            queue_name=spec.scheduling.queue_name,
            deletes_data=spec.lifecycle.data_policy == "Delete",
            suspend_grace_seconds=spec.lifecycle.suspend_grace_seconds,
            elsewhere=spec.managed_by != OURS,
        )

    @classmethod
    def parse(cls, raw: Raw) -> Basics:
        """The fields of a spec that could not be parsed."""
        scheduling, lifecycle = raw.get("scheduling") or {}, raw.get("lifecycle") or {}
        return cls(
            suspend=raw.get("suspend") is True,
            stop=raw.get("stop") is True,
            queued=scheduling.get("provider") == "Kueue",
            queue_name=str(scheduling.get("queueName", "")),
            deletes_data=lifecycle.get("dataPolicy") == "Delete",
            elsewhere=raw.get("managedBy", OURS) != OURS,
        )


_basics: WeakMemo[RLJobSpec, Basics] = WeakMemo(Basics.of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An RLJob, or why its spec cannot be parsed."""

    meta: Meta
    spec: RLJobSpec | None
    spec_error: str
    status: RLJobStatus
    unread: Basics = Basics()
    """Fields of a spec that could not be parsed."""
    held: bool = False
    """Its queue does not admit it."""
    evicted: bool = False
    """It is over, and its queue takes back the quota of the samplers that it keeps."""

    @property
    def basics(self) -> Basics:
        """Fields that are known whether or not the spec could be parsed."""
        return self.unread if self.spec is None else _basics(self.spec)

    @property
    def started(self) -> bool:
        """Whether it has had an attempt: most sections of its spec are fixed since then."""
        return self.status.attempt > 0

    @property
    def suspended(self) -> bool:
        """Whether it must have no pods."""
        return self.held or self.basics.wants_no_pods

    @property
    def keeps_samplers(self) -> bool:
        """Whether its samplers stay after its end."""
        if self.spec is None or self.evicted:
            return False
        return self.spec.lifecycle.cleanup_policy == "None"

    @property
    def finished(self) -> bool:
        """Whether it has completed or failed, for good."""
        ended = ("Complete", "Failed")
        return any(
            condition.type in ended and condition.status == "True"
            for condition in self.status.conditions
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """Everything in Kubernetes that concerns one RLJob."""

    key: Key
    job: Job
    children: Mapping[tuple[str, str], Child]
    """By kind and name, including pools and trainers."""
    pools: tuple[Pool, ...] = ()
    trainers: tuple[TrainerJob, ...] = ()
    """By attempt."""
    pods: tuple[Pod, ...] = ()
    """Of the job's run."""
    own_pods: tuple[Pod, ...] = ()
    """Pods of its programs or environments, which take quota and lack the label of the run."""
    has_trainer_kind: bool = True
    """Whether the API server knows the trainer's kind of object."""
    has_queue_kind: bool = True
    """Whether it knows the kind Workload, for a job that uses a queue."""
    shared: Pool | None = None
    """The shared pool that the spec names, if it exists; also in ``pools`` while it serves us."""

    @property
    def all_pods(self) -> tuple[Pod, ...]:
        """All pods that the job's quota is for."""
        return (*self.pods, *self.own_pods)

    @property
    def samplers_stay(self) -> bool:
        """Whether samplers stay after the job's end; none do once its pools were deleted."""
        return self.job.keeps_samplers and bool(self.pools)

    @property
    def names_pool(self) -> bool:
        """Whether a group of the spec is a shared pool."""
        spec = self.job.spec
        return spec is not None and any(sampler.pool_ref is not None for sampler in spec.samplers)

    def current_trainer(self) -> TrainerJob | None:
        """The trainer's job object of the attempt that the status names."""
        wanted = self.job.status.attempt
        return next((trainer for trainer in self.trainers if trainer.attempt == wanted), None)

    def trainer_pods(self, attempt: int) -> tuple[Pod, ...]:
        """Pods of one attempt by ``failure_rank``: the last one explains the attempt's end."""
        pods = (pod for pod in self.pods if pod.component == "trainer" and pod.attempt == attempt)
        return tuple(sorted(pods, key=lambda pod: (pod.failure_rank, pod.created_at)))

    def sampler_pods(self) -> tuple[Pod, ...]:
        """Pods of all pools, or the trainer's pods where they have an engine."""
        spec, attempt = self.job.spec, self.job.status.attempt
        if spec is not None and spec.colocated:
            return self.trainer_pods(attempt)
        return tuple(pod for pod in self.pods if pod.component == "sampler")

    def pool_stall(self) -> str:
        """Why a pool cannot be reconciled until somebody acts; empty if all can."""
        return next((pool.stall for pool in self.pools if pool.stall), "")

    def sampler_trouble(self) -> str:
        """What keeps sampler pods from being created or from running; empty if nothing is known."""
        troubles = (pool.trouble for pool in self.pools)
        return next(filter(None, troubles), "") or first_trouble(self.sampler_pods())


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """Everything in Kubernetes that concerns one SamplerPool."""

    key: Key
    pool: Pool
    job: Job | None
    """The job that it serves; of a shared pool the first holder."""
    children: Mapping[tuple[str, str], Child] = field(default_factory=dict)
    deployment: DeploymentState = field(default_factory=DeploymentState)
    pods: tuple[Pod, ...] = ()
    episode_pods: tuple[Pod, ...] = ()
    """Pods that each run the program of one episode for its samplers."""
    jobs: tuple[Job, ...] = ()
    """Of a shared pool: all jobs that name it."""
    beside: tuple[Job, ...] = ()
    """Of a shared pool: the other holders."""

    @property
    def served(self) -> tuple[Job, ...]:
        """Jobs that the pool serves and that exist."""
        return (*([self.job] if self.job is not None else []), *self.beside)

    @property
    def held(self) -> bool:
        """Whether its job's queue admits none of its pods, or its job has not recorded any yet."""
        job, spec = self.job, self.pool.spec
        queued = job is not None and job.basics.queued
        return queued and spec is not None and not spec.admitted

    @property
    def size(self) -> int:
        """Pods that it should have while the job is active."""
        spec = self.pool.spec
        assert spec is not None
        queued = self.job is not None and self.job.basics.queued
        return spec.size if queued or spec.suspend else spec.replicas
