"""Everything in Kubernetes that concerns one job or one pool, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rl_contracts.spec.lifecycle import Lifecycle
from rl_contracts.spec.resources import OURS, RLJobSpec, SamplerPoolSpec
from rl_contracts.spec.status import AssignmentStatus, RLJobStatus, SamplerPoolStatus
from rl_operator.kube.kinds import Key
from rl_operator.kube.metadata import Child, Meta, Raw
from rl_operator.kube.weak_memo import WeakMemo
from rl_operator.state.deployment_state import DeploymentState
from rl_operator.state.pod import Pod
from rl_operator.state.trainer_job import TrainerJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A sampler pool, or why its spec cannot be read."""

    meta: Meta
    spec: SamplerPoolSpec | None
    spec_error: str
    status: SamplerPoolStatus

    @property
    def holders(self) -> tuple[AssignmentStatus, ...]:
        """Of a shared pool: whom it serves, in the order in which they got it."""
        first = self.status.assignment
        return (first, *self.status.beside) if first is not None else ()

    def serves(self, job: Job) -> bool:
        """Whether the pool serves this very job's run."""
        return self.given(job) is not None

    def given(self, job: Job) -> AssignmentStatus | None:
        """What the status says of this very job's run; None where the pool does not serve it."""
        mine = (job.meta.name, job.meta.uid)
        return next((holder for holder in self.holders if (holder.job, holder.uid) == mine), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Basics:
    """What a spec asks for, whether or not the rest of it can be read."""

    suspend: bool = False
    queued: bool = False
    """Pods wait for a queue's admission."""
    queue_name: str = ""
    deletes_data: bool = False
    """Deleting the job deletes its documents and objects."""
    suspend_grace_seconds: int = Lifecycle().suspend_grace_seconds
    elsewhere: bool = False
    """Another controller has the job."""

    @classmethod
    def of(cls, spec: RLJobSpec) -> Basics:
        """Those of a spec that can be read."""
        return cls(
            suspend=spec.suspend,
            queued=spec.scheduling.queued,
            queue_name=spec.scheduling.queue_name,
            deletes_data=spec.lifecycle.data_policy == "Delete",
            suspend_grace_seconds=spec.lifecycle.suspend_grace_seconds,
            elsewhere=spec.managed_by != OURS,
        )

    @classmethod
    def parse(cls, raw: Raw) -> Basics:
        """Those of any other one."""
        scheduling, lifecycle = raw.get("scheduling") or {}, raw.get("lifecycle") or {}
        return cls(
            suspend=raw.get("suspend") is True,
            queued=scheduling.get("provider") == "Kueue",
            queue_name=str(scheduling.get("queueName", "")),
            deletes_data=lifecycle.get("dataPolicy") == "Delete",
            elsewhere=raw.get("managedBy", OURS) != OURS,
        )


_basics: WeakMemo[RLJobSpec, Basics] = WeakMemo(Basics.of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An RLJob, or why its spec cannot be read."""

    meta: Meta
    spec: RLJobSpec | None
    spec_error: str
    status: RLJobStatus
    unread: Basics = Basics()
    """Of a spec that cannot be read."""
    held: bool = False
    """Its queue has not admitted it, or not any more."""

    @property
    def basics(self) -> Basics:
        """What its spec asks for, readable or not."""
        return self.unread if self.spec is None else _basics(self.spec)

    @property
    def suspended(self) -> bool:
        """Whether it ought to have no pods."""
        return self.held or self.basics.suspend

    @property
    def keeps_samplers(self) -> bool:
        """Whether its samplers stay when it has finished."""
        return self.spec is not None and self.spec.lifecycle.cleanup_policy == "None"

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
        return spec is not None and any(sampler.pool_ref is not None for sampler in spec.samplers)

    def current_trainer(self) -> TrainerJob | None:
        """The trainer's job object of the attempt that the status names."""
        wanted = self.job.status.attempt
        return next((trainer for trainer in self.trainers if trainer.attempt == wanted), None)

    def trainer_pods(self, attempt: int) -> tuple[Pod, ...]:
        """Pods of one attempt, the one that tells most last: it decides for all of them."""
        found = (pod for pod in self.pods if pod.component == "trainer" and pod.attempt == attempt)
        return tuple(sorted(found, key=lambda one: (one.failure_rank, one.created_at)))

    def sampler_pods(self) -> tuple[Pod, ...]:
        """Pods of all pools."""
        return tuple(pod for pod in self.pods if pod.component == "sampler")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """Everything in Kubernetes that concerns one SamplerPool."""

    key: Key
    pool: Pool
    job: Job | None
    """Whose run it serves; where jobs share it, the first of those that have it."""
    children: Mapping[tuple[str, str], Child] = field(default_factory=dict)
    deployment: DeploymentState = field(default_factory=DeploymentState)
    pods: tuple[Pod, ...] = ()
    jobs: tuple[Job, ...] = ()
    """Of a shared pool: all that name it."""
    beside: tuple[Job, ...] = ()
    """Of a shared pool: the others that have it now."""

    @property
    def served(self) -> tuple[Job, ...]:
        """Jobs whose runs the pool serves, as far as they are there."""
        return (*([self.job] if self.job is not None else []), *self.beside)

    @property
    def held(self) -> bool:
        """Whether its job's queue admits none of its pods, or its job has not said so yet."""
        job, spec = self.job, self.pool.spec
        queued = job is not None and job.basics.queued
        return queued and spec is not None and not spec.admitted

    @property
    def size(self) -> int:
        """Pods that there ought to be while the job is at work."""
        spec = self.pool.spec
        assert spec is not None
        queued = self.job is not None and self.job.basics.queued
        return spec.size if queued or spec.suspend else spec.replicas
